// contexts.wgsl for rows of different sequences: each row has its own position and cache slot, in `places`.
// Positions are clamped to `params.context` keys, slots to the last cache.
const CACHES = 1u;
const OWN = 0u; // caches per batch: rows may share one
@group(0) @binding(9) var<storage, read> places: array<vec2<i32>>; // (position, slot) of a row

fn keys_of(batch: u32) -> u32 { return u32(clamp(places[batch].x, 0, params.context - 1)) + 1u; }
fn cache_of(batch: u32) -> u32 { return u32(clamp(places[batch].y, 0, i32(CACHES) - 1)); }
