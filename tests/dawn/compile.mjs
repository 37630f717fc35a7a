// Compiles WGSL with Dawn, as browsers do, on its null backend: no GPU is touched.
// Each line read is a kernel's text as JSON; each line written is the JSON list of what Dawn has against it.
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const { create, globals } = await import(pathToFileURL(process.argv[2])); // the package's index.js
Object.assign(globalThis, globals);

const gpu = create(['backend=null']); // referred to at the end too: Dawn ends when this is collected
const adapter = await gpu.requestAdapter();
const device = await adapter.requestDevice({ requiredFeatures: ['shader-f16', 'subgroups'] });
// The null backend has the least that WebGPU grants; kernels that need more are planned where there is more.
const beyondTheLeast = /total use of workgroup storage/;

async function complaints(code) {
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ code });
  const { messages } = await module.getCompilationInfo();
  const found = messages.filter(({ type }) => type === 'error').map((m) => `line ${m.lineNum}: ${m.message}`);
  if (!found.length) {
    device.createComputePipeline({ layout: 'auto', compute: { module, entryPoint: 'main' } });
  }
  const error = await device.popErrorScope();
  return found.length || !error || beyondTheLeast.test(error.message) ? found : [error.message];
}

console.log('ready');
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await complaints(JSON.parse(line))));
}
process.exit(gpu ? 0 : 1);
