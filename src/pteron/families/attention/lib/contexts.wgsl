// The cache of a batch, and its number of keys. With places, a batch is a row of some sequence, which has its own
// (position, slot): positions are clamped to `params.context` keys, slots to the last cache. Without them batch i uses
// cache i, and all have the same number of keys.
override CACHES: u32 = 0u; // that places select
// Caches per batch: those of rows may be the same.
@if(places) const OWN = 0u;
@else const OWN = 1u;

@group(0) @binding(9) var<storage, read> places: array<vec2<i32>>;

fn keys_of(batch: u32) -> u32 {
  @if(places) return u32(clamp(places[batch].x, 0, params.context - 1)) + 1u;
  @else return u32(params.context);
}

fn cache_of(batch: u32) -> u32 {
  @if(places) return u32(clamp(places[batch].y, 0, i32(CACHES) - 1));
  @else return batch;
}
