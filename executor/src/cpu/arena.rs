//! The rank's memory: one allocation that buffers are ranges of. Streams of a rank touch it from several threads at once;
//! that they never touch one range together is what [`Checked`] proves, and why only this file and its callers in the
//! walk use `unsafe`.
//!
//! [`Checked`]: meshwright_ir::program::Checked
#![allow(unsafe_code)]

use half::{bf16, f16};
use meshwright_ir::Bytes;
use meshwright_ir::program::Buffer;
use std::cell::UnsafeCell;

/// An element type whose every bit pattern is a value.
pub(super) trait Word: Copy {}
impl Word for f32 {}
impl Word for bf16 {}
impl Word for f16 {}
impl Word for u8 {}

/// Memory in fp32 words, zero at first.
pub(super) struct Arena {
    words: Box<[UnsafeCell<f32>]>,
}

// SAFETY: shared access goes through `words` and `words_mut`, whose callers hold the program's proof that no two threads
// use overlapping ranges at once unless both only read.
unsafe impl Sync for Arena {}

impl Arena {
    pub(super) fn new(size: Bytes) -> Self {
        let zeros = vec![0f32; size.0.div_ceil(4) as usize].into_boxed_slice();
        // SAFETY: UnsafeCell<f32> has the layout of f32.
        let words = unsafe { Box::from_raw(Box::into_raw(zeros) as *mut [UnsafeCell<f32>]) };
        Self { words }
    }

    /// Start of `elements` words of type W from a byte offset; panics outside the arena or where W would lie askew.
    fn start<W: Word>(&self, offset: Bytes, elements: usize) -> *mut W {
        let (from, bytes) = (offset.0 as usize, elements * size_of::<W>());
        assert!(from + bytes <= self.words.len() * 4 && from.is_multiple_of(size_of::<W>()));
        self.words.as_ptr().cast::<u8>().wrapping_add(from).cast_mut().cast()
    }

    /// The elements of a buffer.
    ///
    /// # Safety
    /// No thread may write any of them while the slice lives; W must be the buffer's element type or, for ids, f32.
    pub(super) unsafe fn words<W: Word>(&self, buffer: &Buffer) -> &[W] {
        let n = buffer.elements as usize;
        // SAFETY: `start` checked the range; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts(self.start(buffer.offset, n), n) }
    }

    /// The elements of a buffer, to be written.
    ///
    /// # Safety
    /// No other reference to any of them may be used while the slice lives; W as for [`Arena::words`].
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn words_mut<W: Word>(&self, buffer: &Buffer) -> &mut [W] {
        let n = buffer.elements as usize;
        // SAFETY: `start` checked the range; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts_mut(self.start(buffer.offset, n), n) }
    }

    /// `words` fp32 words from the start of a buffer: a run of buffers that follow each other without a gap.
    ///
    /// # Safety
    /// As for [`Arena::words_mut`], for all of them.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn run_mut(&self, first: &Buffer, words: usize) -> &mut [f32] {
        // SAFETY: `start` checked the range; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts_mut(self.start(first.offset, words), words) }
    }
}

/// The ids that a slice of words holds.
pub(super) fn ids(words: &[f32]) -> &[u32] {
    // SAFETY: u32 and f32 have one size and alignment, and every bit pattern is valid in both.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}

/// The ids that a slice of words holds, to be written.
pub(super) fn ids_mut(words: &mut [f32]) -> &mut [u32] {
    // SAFETY: as for `ids`, and the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len()) }
}
