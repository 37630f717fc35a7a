// The sizes of heads. A cache in 8 bits has, for every 32 elements of a head, a block of nine words: an f32 scale, then
// eight words of four elements.
override IS_INT8: bool = false; // keys and values are such caches
override WIDTH: u32 = 64u; // elements of a query and of a key
override VALUE_WIDTH: u32 = 64u; // of a value

// Elements, or words, that a key and a value take in their caches
@if(IS_INT8) const KEY_ROW = WIDTH / 4u + (WIDTH + 31u) / 32u;
@else const KEY_ROW = WIDTH;
@if(IS_INT8) const VALUE_ROW = VALUE_WIDTH / 4u + (VALUE_WIDTH + 31u) / 32u;
@else const VALUE_ROW = VALUE_WIDTH;
