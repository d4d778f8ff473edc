//! What works on each token alone: a feed-forward of two or three matrices, or a mixture of such experts with its router,
//! as facts and as graphs.

use super::block::{Block, Projection};
use super::decoder::norm;
use meshwright_ir::{ActivationKind, Dropout, NormKind, Op, Real, RouteKind, Value, room};

/// A feed-forward part.
#[derive(Clone, PartialEq)]
pub(crate) enum Mlp {
    Dense(Dense),
    Experts(Experts),
    /// One matrix.
    Linear,
}

impl Mlp {
    /// What a layer with it is called beside the model's first kind.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Mlp::Dense(_) => "dense",
            Mlp::Experts(_) => "moe",
            Mlp::Linear => "linear",
        }
    }
    /// Its graph on `x`.
    pub(crate) fn build(&self, b: &mut Block, x: Value, h: u64) -> Value {
        match self {
            Mlp::Dense(d) => d.build(b, "", x, h),
            Mlp::Experts(e) => e.build(b, x, h),
            Mlp::Linear => b.project("mlp", x, Projection::new(h, h)),
        }
    }
}

/// `down(f(up(x)))`, or gated: `down(f(gate(x)) · up(x))`.
#[derive(Clone, PartialEq)]
pub(crate) struct Dense {
    pub(crate) inner: u64,
    pub(crate) kind: ActivationKind,
    pub(crate) gated: bool,
    /// Biases of what widens, and of what narrows.
    pub(crate) bias: [bool; 2],
    /// Standard deviation of the last matrix, where it is not the model's.
    pub(crate) out_std: Option<f64>,
    /// What is dropped of the output.
    pub(crate) dropout: Option<Dropout>,
}

impl Dense {
    /// Without biases.
    pub(crate) fn new(inner: u64, kind: ActivationKind, gated: bool) -> Self {
        Self { inner, kind, gated, bias: [false; 2], out_std: None, dropout: None }
    }
    /// Nodes are called after `prefix`.
    fn build(&self, b: &mut Block, prefix: &str, x: Value, h: u64) -> Value {
        let name = |what: &str| format!("{prefix}{what}");
        let wide = || Projection { bias: self.bias[0], ..Projection::new(h, self.inner) };
        let (kind, width) = (self.kind, self.inner);
        let x = if self.gated {
            let gate = b.project(&name("gate"), x, wide());
            let up = b.project(&name("up"), x, wide());
            b.add(&name(&kind.to_string()), Op::Gate { kind, width }, [gate, up])
        } else {
            let up = b.project(&name("up"), x, wide());
            b.add(&name("act"), Op::Activation { kind, width }, [up])
        };
        let narrow = Projection { bias: self.bias[1], std: self.out_std, ..Projection::new(self.inner, h) };
        let y = b.project(&name("down"), x, narrow);
        b.drop(&name("down"), y, h, self.dropout)
    }
}

/// A router and experts, of which each token visits `top_k`; perhaps one more feed-forward that every token visits.
#[derive(Clone, PartialEq)]
pub(crate) struct Experts {
    pub(crate) experts: u64,
    pub(crate) top_k: u64,
    pub(crate) inner: u64,
    pub(crate) kind: ActivationKind,
    pub(crate) gated: bool,
    pub(crate) route: RouteKind,
    pub(crate) router_bias: bool,
    pub(crate) expert_bias: bool,
    /// The router reads its input normalised without scale, then scaled feature by feature; each expert's output has a
    /// scale as well (Gemma 4).
    pub(crate) scaled_router: Option<Real>,
    pub(crate) shared: Option<Dense>,
    /// The shared part's output is gated by one number per token.
    pub(crate) shared_gate: bool,
}

impl Experts {
    /// Gated experts behind a softmax router, nothing shared.
    pub(crate) fn new(experts: u64, top_k: u64, inner: u64, kind: ActivationKind) -> Self {
        Self {
            experts,
            top_k,
            inner,
            kind,
            gated: true,
            route: RouteKind::Softmax,
            router_bias: false,
            expert_bias: false,
            scaled_router: None,
            shared: None,
            shared_gate: false,
        }
    }

    fn build(&self, b: &mut Block, x: Value, h: u64) -> Value {
        let Self { experts, top_k, inner, kind, .. } = *self;
        let mut seen = x;
        if let Some(eps) = self.scaled_router {
            seen = b.add("router.norm", norm(NormKind::RmsPlain, h, eps), [x]);
            seen = b.add("router.gain", Op::Gain { width: h, grain: 1 }, [seen]);
        }
        let to_experts = Projection { bias: self.router_bias, ..Projection::new(h, experts) };
        let logits = b.project("router", seen, to_experts);
        let mut route = b.add("route", Op::Route { experts, top_k, kind: self.route }, [logits]);
        if self.scaled_router.is_some() {
            route = b.add("route.gain", Op::Gain { width: experts, grain: 1 }, [route]);
        }
        let tokens = b.add("dispatch", Op::Dispatch { width: h, experts, top_k }, [x, route]);
        let width = experts * room(experts, top_k, inner);
        let y = if self.gated {
            let gate = self.matrix(b, "experts.gate", tokens, h, inner);
            let up = self.matrix(b, "experts.up", tokens, h, inner);
            b.add("experts.act", Op::Gate { kind, width }, [gate, up])
        } else {
            let up = self.matrix(b, "experts.up", tokens, h, inner);
            b.add("experts.act", Op::Activation { kind, width }, [up])
        };
        let y = self.matrix(b, "experts.down", y, inner, h);
        let y = b.add("combine", Op::Combine { width: h, experts, top_k }, [y, route]);
        let Some(shared) = &self.shared else { return y };
        let mut s = shared.build(b, "shared.", x, h);
        if self.shared_gate {
            // One number per token, spread over the features: σ(x·w) times the shared output.
            let gate = b.project("shared.scale", x, Projection::new(h, 1));
            s = b.add("shared.scaled", Op::Spread { width: h }, [gate, s]);
        }
        b.add("shared.sum", Op::Add { width: h }, [y, s])
    }

    fn matrix(&self, b: &mut Block, name: &str, x: Value, input: u64, output: u64) -> Value {
        let Self { experts, top_k, .. } = *self;
        let y = b.add(name, Op::ExpertLinear { experts, top_k, input, output }, [x]);
        match self.expert_bias {
            true => b.add(&format!("{name}.bias"), Op::ExpertBias { experts, top_k, width: output }, [y]),
            false => y,
        }
    }
}
