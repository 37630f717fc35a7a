// A page that listens: the microphone or a file, in pieces as long as the program takes, written down by Whisper.

import type { Program, Spec } from "../../player/api.ts";
import { byId } from "../../shared/elements.ts";
import { loadSite, showError } from "../common/load.ts";
import { HOP, logMel, RATE } from "./mel.ts";
import { transcribe, type Words } from "./transcribe.ts";

let isBusy = false;

/** Write down all that is said in samples. */
async function listen(program: Program, words: Words, samples: Float32Array): Promise<void> {
  const { inputs } = program.methods.encode as { inputs: Spec[] };
  const [, bands, frames] = (inputs[0] as Spec).shape as [number, number, number];
  const text = byId("heard");
  text.textContent = "";
  const started = performance.now();
  for (let at = 0; at < samples.length; at += frames * HOP) {
    const spectrogram = logMel(samples.subarray(at, at + frames * HOP), bands, frames);
    for await (const piece of transcribe(program, words, spectrogram)) text.append(piece);
  }
  const [taken, length] = [(performance.now() - started) / 1000, samples.length / RATE];
  byId("speed").textContent = `${length.toFixed(1)} s of sound in ${taken.toFixed(1)} s`;
}

/** The samples of a sound, channels averaged, at the rate that Whisper takes. */
async function samplesOf(data: ArrayBuffer): Promise<Float32Array> {
  const sound = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(data);
  const channels = Array.from({ length: sound.numberOfChannels }, (_, at) => sound.getChannelData(at));
  return Float32Array.from({ length: sound.length }, (_, at) => {
    return channels.reduce((sum, channel) => sum + (channel[at] as number), 0) / channels.length;
  });
}

/** Record until the button is pressed again. */
async function record(button: HTMLButtonElement): Promise<ArrayBuffer> {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const recorder = new MediaRecorder(stream);
  const parts: Blob[] = [];
  recorder.ondataavailable = ({ data }) => parts.push(data);
  button.textContent = "Stop";
  recorder.start();
  await new Promise((resolve) => button.addEventListener("click", resolve, { once: true }));
  const stopped = new Promise((resolve) => {
    recorder.onstop = resolve;
  });
  recorder.stop();
  await stopped;
  for (const track of stream.getTracks()) track.stop();
  button.textContent = "Listen";
  return new Blob(parts).arrayBuffer();
}

const program = await loadSite();
if (program) {
  byId("sound").hidden = false;
  const words = (await program.data()) as Words;
  const once = async (work: () => Promise<ArrayBuffer | undefined>) => {
    if (isBusy) return;
    isBusy = true;
    try {
      const data = await work();
      if (data) await listen(program, words, await samplesOf(data));
    } catch (error) {
      showError(error);
    }
    isBusy = false;
  };
  const [button, file] = [byId<HTMLButtonElement>("listen"), byId<HTMLInputElement>("file")];
  button.addEventListener("click", () => once(() => record(button)));
  file.addEventListener("change", () => once(async () => file.files?.[0]?.arrayBuffer()));
}
