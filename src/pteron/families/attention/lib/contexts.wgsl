// The cache of a batch, and its number of keys: here batch i uses cache i, and all have the same number of keys.
const CACHES = 0u; // number of caches, if batches select one (contexts_rows.wgsl)
const OWN = 1u; // caches per batch

fn keys_of(batch: u32) -> u32 { return u32(params.context); }
fn cache_of(batch: u32) -> u32 { return batch; }
