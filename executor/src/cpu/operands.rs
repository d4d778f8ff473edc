//! Operands of instructions as fp32: what is stored in fp32 (or as ids) is used where it lies; what is stored in 16 bits, or
//! as a mask in 8, is widened on the way in and rounded to nearest even on the way out, so that a run in bf16 or fp16 has the rounding of
//! the hardware it stands for. Arithmetic in between is fp32, as in matrix units that accumulate in fp32.
#![allow(unsafe_code)]

use super::arena::Arena;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use meshwright_ir::DType;
use meshwright_ir::program::Buffer;
use std::borrow::Cow;

/// The elements of a buffer that is read.
///
/// # Safety
/// As for [`Arena::words`].
pub(super) unsafe fn input<'a>(arena: &'a Arena, buffer: &Buffer) -> Cow<'a, [f32]> {
    let mut wide = vec![0.0; if is_narrow(buffer.dtype) { buffer.elements as usize } else { 0 }];
    // SAFETY: the caller's.
    unsafe {
        match buffer.dtype {
            DType::Bf16 => arena.words::<bf16>(buffer).convert_to_f32_slice(&mut wide),
            DType::F16 => arena.words::<f16>(buffer).convert_to_f32_slice(&mut wide),
            DType::U8 => wide.iter_mut().zip(arena.words::<u8>(buffer)).for_each(|(x, w)| *x = f32::from(*w)),
            DType::F32 | DType::F8 | DType::I32 => return Cow::Borrowed(arena.words::<f32>(buffer)),
        }
    }
    Cow::Owned(wide)
}

/// A buffer that is written.
pub(super) enum Output<'a> {
    /// Where it lies.
    Here(&'a mut [f32]),
    /// Beside, until it is rounded.
    Bf16(&'a mut [bf16], Vec<f32>),
    /// Beside, until it is rounded.
    F16(&'a mut [f16], Vec<f32>),
    /// Beside, until it is cut to whole numbers.
    U8(&'a mut [u8], Vec<f32>),
}

impl<'a> Output<'a> {
    /// Opens a buffer for writing. `keeps` when the instruction may leave parts of it as they are.
    ///
    /// # Safety
    /// As for [`Arena::words_mut`].
    pub(super) unsafe fn open(arena: &'a Arena, buffer: &Buffer, keeps: bool) -> Self {
        let mut wide = vec![0.0; if is_narrow(buffer.dtype) { buffer.elements as usize } else { 0 }];
        // SAFETY: the caller's.
        unsafe {
            match buffer.dtype {
                DType::Bf16 => {
                    let words = arena.words_mut::<bf16>(buffer);
                    if keeps {
                        words.convert_to_f32_slice(&mut wide);
                    }
                    Output::Bf16(words, wide)
                }
                DType::F16 => {
                    let words = arena.words_mut::<f16>(buffer);
                    if keeps {
                        words.convert_to_f32_slice(&mut wide);
                    }
                    Output::F16(words, wide)
                }
                DType::U8 => {
                    let words = arena.words_mut::<u8>(buffer);
                    if keeps {
                        wide.iter_mut().zip(&*words).for_each(|(x, w)| *x = f32::from(*w));
                    }
                    Output::U8(words, wide)
                }
                DType::F32 | DType::F8 | DType::I32 => Output::Here(arena.words_mut::<f32>(buffer)),
            }
        }
    }

    /// The elements, as fp32.
    pub(super) fn values(&mut self) -> &mut [f32] {
        match self {
            Output::Here(words) => words,
            Output::Bf16(_, wide) | Output::F16(_, wide) | Output::U8(_, wide) => wide,
        }
    }

    /// Rounds what was written into place.
    pub(super) fn close(self) {
        match self {
            Output::Here(_) => {}
            Output::Bf16(words, wide) => words.convert_from_f32_slice(&wide),
            Output::F16(words, wide) => words.convert_from_f32_slice(&wide),
            Output::U8(words, wide) => words.iter_mut().zip(wide).for_each(|(w, x)| *w = x as u8),
        }
    }
}

fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::Bf16 | DType::F16 | DType::U8)
}
