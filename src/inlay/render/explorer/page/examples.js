/**
 * Layouts to begin with, as fragments of a URL.
 */

export const EXAMPLES = [
  ["Understanding memory formats: nchw", "l=nchw&d=2x16x5x4&mark=jumps"],
  ["Understanding memory formats: nhwc", "l=nhwc&d=2x16x5x4&mark=jumps"],
  ["Understanding memory formats: chwn", "l=chwn&d=2x16x5x4&mark=jumps"],
  ["Understanding memory formats: nChw8c", "l=nChw8c&d=2x16x5x4"],
  ["Understanding memory formats: zero padding", "l=nChw8c&d=2x17x5x4"],
  ["Rows with a stride and gaps", "l=8,1&d=4x6&t=bf16"],
  ["Reorder: nchw to nChw8c", "l=nchw&d=2x16x5x4&l2=nChw8c"],
  ["Reorder: transposed matrix", "l=ab&d=16x16&l2=ba"],
  ["Weights in two blocks: OIhw8i8o", "l=OIhw8i8o&d=16x16x3x3"],
  ["int8 weights for VNNI: OIhw4i16o4i", "l=OIhw4i16o4i&d=16x16x3x3&t=s8&mark=vnni,simd"],
  ["bf16 matrix in pairs: BA16a16b2a", "l=BA16a16b2a&d=64x32&t=bf16&mark=vnni,simd"],
  ["NVFP4 scales: pattern of 128x4 tiles", "l=(m+m4+m32)+(k+k4)+->+m+k+m32+m4+k4&d=256x8&t=f8_e4m3"],
  ["Swizzled rows: Swizzle<3,3,3>", "l=Swizzle%3C3,3,3%3E+o+ab&d=16x64&t=f16"],
  ["View: permuted and reshaped", "l=nchw&d=2x16x5x4&v=permute:n,h,w,c&v=reshape:2x20x16"],
  ["Ten million elements", "l=nChw16c&d=1x64x400x400"],
];
