//! Mixers that run along the sequence instead of attending: Mamba (Gu and Dao 2023), Mamba 2 (Dao and Gu 2024) and the
//! gated delta rule (Yang et al. 2024), each with its short convolutions and gates, as transformers lays them out.

use super::block::{Block, Projection};
use super::decoder::norm;
use meshwright_ir::{ActivationKind, NormKind, Op, Real, ScanKind, Value};

/// One of them.
#[derive(Clone, PartialEq)]
pub(crate) struct Recurrence {
    pub(crate) kind: Kind,
    /// Taps of the short convolutions, and whether they have biases.
    pub(crate) kernel: u64,
    pub(crate) conv_bias: bool,
    /// Biases of what leads in and out.
    pub(crate) bias: bool,
    pub(crate) eps: Real,
}

/// What differs.
#[derive(Clone, PartialEq)]
pub(crate) enum Kind {
    /// `normed`: steps and what reads and writes the state are normalised (Jamba).
    Selective {
        inner: u64,
        state: u64,
        rank: u64,
        normed: bool,
    },
    /// `norm_groups`: groups of features that the gated norm takes together.
    Ssd {
        heads: u64,
        head_dim: u64,
        state: u64,
        groups: u64,
        norm_groups: u64,
    },
    Delta {
        key_heads: u64,
        key_dim: u64,
        value_heads: u64,
        value_dim: u64,
    },
}

impl Recurrence {
    pub(crate) fn build(&self, b: &mut Block, x: Value, h: u64) -> Value {
        match self.kind {
            Kind::Selective { inner, state, rank, normed } => {
                self.selective(b, x, h, inner, state, rank, normed)
            }
            Kind::Ssd { heads, head_dim, state, groups, norm_groups } => {
                self.ssd(b, x, h, heads, head_dim, state, groups, norm_groups)
            }
            Kind::Delta { key_heads, key_dim, value_heads, value_dim } => {
                self.delta(b, x, h, key_heads, key_dim, value_heads, value_dim)
            }
        }
    }

    fn biased(&self, input: u64, output: u64) -> Projection {
        Projection { bias: self.bias, ..Projection::new(input, output) }
    }

    /// A short convolution and SiLU.
    fn conv(&self, b: &mut Block, name: &str, x: Value, width: u64) -> Value {
        let mut y = b.add(&format!("{name}.conv"), Op::Conv { width, kernel: self.kernel }, [x]);
        if self.conv_bias {
            y = b.add(&format!("{name}.conv.bias"), Op::Bias { width, grain: 1 }, [y]);
        }
        b.add(&format!("{name}.act"), Op::Activation { kind: ActivationKind::Silu, width }, [y])
    }

    #[allow(clippy::too_many_arguments)]
    fn selective(
        &self,
        b: &mut Block,
        x: Value,
        h: u64,
        inner: u64,
        state: u64,
        rank: u64,
        normed: bool,
    ) -> Value {
        let gate = b.project("gate.in", x, self.biased(h, inner));
        let x = b.project("x", x, self.biased(h, inner));
        let x = self.conv(b, "x", x, inner);
        let from_x = |b: &mut Block, name: &str, width| {
            let y = b.project(name, x, Projection::new(inner, width));
            match normed {
                true => b.add(&format!("{name}.norm"), norm(NormKind::Rms, width, self.eps), [y]),
                false => y,
            }
        };
        let step = from_x(b, "step", rank);
        let write = from_x(b, "write", state);
        let read = from_x(b, "read", state);
        let step = b.project("step.up", step, Projection { bias: true, ..Projection::new(rank, inner) });
        let scan = Op::Scan { kind: ScanKind::Selective, heads: inner, head_dim: 1, state, groups: 1 };
        let y = b.add("scan", scan, [x, step, write, read]);
        let y = b.add("gated", Op::Gate { kind: ActivationKind::Silu, width: inner }, [gate, y]);
        b.project("out", y, self.biased(inner, h))
    }

    #[allow(clippy::too_many_arguments)]
    fn ssd(
        &self,
        b: &mut Block,
        x: Value,
        h: u64,
        heads: u64,
        head_dim: u64,
        state: u64,
        groups: u64,
        norm_groups: u64,
    ) -> Value {
        let (inner, shared) = (heads * head_dim, groups * state);
        let gate = b.project("gate.in", x, self.biased(h, inner));
        let values = b.project("x", x, self.biased(h, inner));
        let write = b.project("write", x, self.biased(h, shared));
        let read = b.project("read", x, self.biased(h, shared));
        let step = b.project("step", x, self.biased(h, heads));
        let values = self.conv(b, "x", values, inner);
        let write = self.conv(b, "write", write, shared);
        let read = self.conv(b, "read", read, shared);
        let step = b.add("step.start", Op::Bias { width: heads, grain: 1 }, [step]);
        let scan = Op::Scan { kind: ScanKind::Ssd, heads, head_dim, state, groups };
        let y = b.add("scan", scan, [values, step, write, read]);
        let y = b.add("gated", Op::Gate { kind: ActivationKind::Silu, width: inner }, [gate, y]);
        let y = if norm_groups > 1 {
            let (kind, width) = (NormKind::RmsPlain, inner / norm_groups);
            let y = b.add("norm.inner", Op::Norm { kind, width, groups: norm_groups, eps: self.eps }, [y]);
            b.add("norm.gain", Op::Gain { width: inner, grain: 1 }, [y])
        } else {
            b.add("norm.inner", norm(NormKind::Rms, inner, self.eps), [y])
        };
        b.project("out", y, self.biased(inner, h))
    }

    #[allow(clippy::too_many_arguments)]
    fn delta(
        &self,
        b: &mut Block,
        x: Value,
        h: u64,
        key_heads: u64,
        key_dim: u64,
        value_heads: u64,
        value_dim: u64,
    ) -> Value {
        let (keys, values) = (key_heads * key_dim, value_heads * value_dim);
        let q = b.project("q", x, self.biased(h, keys));
        let k = b.project("k", x, self.biased(h, keys));
        let v = b.project("v", x, self.biased(h, values));
        let gate = b.project("gate.in", x, self.biased(h, values));
        let beta = b.project("beta", x, self.biased(h, value_heads));
        let decay = b.project("decay", x, self.biased(h, value_heads));
        let q = self.conv(b, "q", q, keys);
        let k = self.conv(b, "k", k, keys);
        let v = self.conv(b, "v", v, values);
        let sigmoid = Op::Activation { kind: ActivationKind::Sigmoid, width: value_heads };
        let beta = b.add("beta.act", sigmoid, [beta]);
        let decay = b.add("decay.start", Op::Bias { width: value_heads, grain: 1 }, [decay]);
        let scan = Op::Scan {
            kind: ScanKind::Delta,
            heads: value_heads,
            head_dim: value_dim,
            state: key_dim,
            groups: key_heads,
        };
        let y = b.add("scan", scan, [q, k, v, beta, decay]);
        let per_head = Op::Norm { kind: NormKind::Rms, width: value_dim, groups: value_heads, eps: self.eps };
        let y = b.add("norm.inner", per_head, [y]);
        let y = b.add("gated", Op::Gate { kind: ActivationKind::Silu, width: values }, [gate, y]);
        b.project("out", y, self.biased(values, h))
    }
}
