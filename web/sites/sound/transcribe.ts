// Whisper: a spectrogram is encoded once, then the decoder gives the scores of one token after the other. What both
// remember stays on the GPU.

import type { Input, Output, Program, Spec } from "../../player/api.ts";

/** What the site's data say of the words: tokens that are text come first; those that steer the decoder follow. */
export interface Words {
  pieces: string[]; // one character for each byte
  prompt: number[];
  end: number;
  notFirst: number[];
}

const names = (specs: Spec[]) => specs.map(({ name }) => name);

/** The text of a spectrogram [bands, frames], piece by piece. */
export async function* transcribe(program: Program, words: Words, spectrogram: Float32Array): AsyncGenerator<string> {
  const { encode, decode } = program.methods as Record<string, { inputs: Spec[]; outputs: Spec[] }>;
  if (!encode || !decode) throw new Error("This site has no methods encode and decode.");
  const heard = await program.run(
    { [(encode.inputs[0] as Spec).name]: { data: spectrogram, shape: encode.inputs[0]?.shape as number[] } },
    { method: "encode", onGpu: names(encode.outputs) },
  );
  const sound = Object.values(heard);
  const [scores, ...remembered] = names(decode.outputs) as [string, ...string[]];
  let text: Input[] = decode.inputs.slice(2 + sound.length).map(({ shape = [] }) => {
    return { data: new Float32Array(shape.reduce((a, b) => a * b, 1)), shape };
  });
  const decoder = new TextDecoder();
  const given = [...words.prompt];
  try {
    for (let position = 0; position < given.length; position++) {
      const values: Input[] = [[given[position] as number], [position], ...sound, ...text];
      const inputs = Object.fromEntries(decode.inputs.map(({ name }, at) => [name, values[at] as Input]));
      const found = await program.run(inputs, { method: "decode", onGpu: remembered });
      await program.free(text.filter((each) => typeof each === "object" && "gpu" in each) as Output[]);
      text = remembered.map((name) => found[name] as Output);
      if (position + 1 < given.length) continue; // of the prompt only the last token is answered
      const best = likeliest((found[scores] as Output).data, words, position + 1 === words.prompt.length);
      if (best === words.end || position + 1 >= textPositions(decode.inputs.at(-1))) break;
      given.push(best);
      const bytes = Uint8Array.from(words.pieces[best] as string, (letter) => letter.charCodeAt(0));
      yield decoder.decode(bytes, { stream: true });
    }
    yield decoder.decode();
  } finally {
    await program.free([...sound, ...text] as Output[]);
  }
}

const textPositions = (memory: Spec | undefined): number => memory?.shape?.[1] ?? 448;

/** The best token that is text or the end; at first, not the end and not a mere space. */
function likeliest(scores: ArrayLike<number>, { end, notFirst }: Words, isFirst: boolean): number {
  let best = -1;
  for (let token = 0; token <= end; token++) {
    if (isFirst && notFirst.includes(token)) continue;
    if (best < 0 || (scores[token] as number) > (scores[best] as number)) best = token;
  }
  return best;
}
