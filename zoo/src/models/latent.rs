//! Multi-head latent attention (DeepSeek-V2, section 2.1): queries and keys with values pass through low ranks, one rotary
//! key serves all heads. With `indexer`, a small second attention chooses which keys are attended (DeepSeek-V3.2).

use super::block::{Block, Projection};
use super::decoder::norm;
use meshwright_ir::{NormKind, Op, Real, Value};

/// Sizes of a latent attention.
#[derive(Clone, PartialEq)]
pub(crate) struct Latent {
    pub(crate) heads: u64,
    /// Rank of the queries; none: one matrix.
    pub(crate) q_rank: Option<u64>,
    pub(crate) kv_rank: u64,
    pub(crate) nope: u64,
    pub(crate) rotary: u64,
    pub(crate) value: u64,
    /// Biases of what leads into the ranks, and of the output.
    pub(crate) bias: bool,
    pub(crate) eps: Real,
    pub(crate) theta: f64,
    /// Heads, features and chosen keys of an indexer.
    pub(crate) indexer: Option<(u64, u64, u64)>,
}

impl Latent {
    pub(crate) fn build(&self, b: &mut Block, x: Value, h: u64) -> Value {
        let (qk, kv) = (self.nope + self.rotary, self.nope + self.value);
        let rms = |rank| norm(NormKind::Rms, rank, self.eps);
        let biased = |input, output| Projection { bias: self.bias, ..Projection::new(input, output) };
        let heads = |input, features| Projection {
            output_grain: features,
            ..Projection::new(input, self.heads * features)
        };
        let (ranked, q) = match self.q_rank {
            None => (x, b.project("q", x, heads(h, qk))),
            Some(rank) => {
                let y = b.project("q.down", x, biased(h, rank));
                let y = b.add("q.norm", rms(rank), [y]);
                (y, b.project("q.up", y, heads(rank, qk)))
            }
        };
        let latent = b.project("kv.down", x, biased(h, self.kv_rank));
        let key = b.project("k.rotary", x, biased(h, self.rotary));
        let latent = b.add("kv.norm", rms(self.kv_rank), [latent]);
        let latent = b.project("kv.up", latent, heads(self.kv_rank, kv));
        let theta = Real(self.theta);
        let turned = Some(self.rotary).filter(|_| self.nope > 0);
        let q = b.add("q.rope", Op::Rope { heads: self.heads, head_dim: qk, theta, turned }, [q]);
        let key = b.add("k.rope", Op::Rope { heads: 1, head_dim: self.rotary, theta, turned: None }, [key]);
        let core = Op::LatentAttention {
            heads: self.heads,
            nope: self.nope,
            rotary: self.rotary,
            value: self.value,
            top: self.indexer.map(|(.., top)| top),
        };
        let y = match self.indexer {
            None => b.add("attn", core, [q, latent, key]),
            Some(indexer) => {
                let chosen = self.index(b, x, ranked, h, indexer);
                b.add("attn", core, [q, latent, key, chosen])
            }
        };
        let out = Projection {
            input_grain: self.value,
            bias: self.bias,
            ..Projection::new(self.heads * self.value, h)
        };
        b.project("proj", y, out)
    }

    /// The indexer's own small queries, shared key and head weights, and the keys it chooses by them.
    fn index(
        &self,
        b: &mut Block,
        x: Value,
        ranked: Value,
        h: u64,
        (heads, head_dim, top): (u64, u64, u64),
    ) -> Value {
        let theta = Real(self.theta);
        let turned = Some(self.rotary).filter(|t| *t != head_dim);
        let per_head = Projection {
            output_grain: head_dim,
            ..Projection::new(self.q_rank.unwrap_or(h), heads * head_dim)
        };
        let q = b.project("index.q", ranked, per_head);
        let q = b.add("index.q.rope", Op::Rope { heads, head_dim, theta, turned }, [q]);
        let k = b.project("index.k", x, Projection::new(h, head_dim));
        let k = b.add("index.k.norm", norm(NormKind::Layer, head_dim, Real(1e-6)), [k]);
        let k = b.add("index.k.rope", Op::Rope { heads: 1, head_dim, theta, turned }, [k]);
        let weights = b.project("index.weights", x, Projection::new(h, heads));
        b.add("index", Op::Index { heads, head_dim, top }, [q, k, weights])
    }
}
