// What a batch of queries attends to: a cache of its own, as far as the launch says for all of them.
const CACHES = 0u; // where batches choose among them: how many there are

fn keys_of(batch: u32) -> u32 { return u32(params.context); }
fn cache_of(batch: u32) -> u32 { return batch; }
