//! What an instruction is, in six kinds that a reader can tell apart by colour and by pattern. The names below are also
//! class names in the stylesheet and ids of the SVG patterns.

use maud::{Markup, html};
use meshwright_ir::Program;
use meshwright_ir::program::{Action, Kernel, OpKernel, Pass};

/// Kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Forward kernels.
    Forward,
    /// Backward kernels, and sums of gradients.
    Backward,
    /// Communication within a stage.
    Collective,
    /// Messages between stages.
    Exchange,
    /// Gradient norm and update.
    Optimizer,
    /// Loading and rearranging tensors.
    Rearrange,
}

impl Kind {
    /// Every kind, in the order of the legend.
    pub(crate) const ALL: [Kind; 6] =
        [Kind::Forward, Kind::Backward, Kind::Collective, Kind::Exchange, Kind::Optimizer, Kind::Rearrange];

    /// The kind of an action of `program`.
    pub(crate) fn of(program: &Program, action: Action) -> Self {
        match action {
            Action::Compute(k) => Self::of_kernel(&program.kernels[k as usize]),
            Action::Collective(_) => Kind::Collective,
            Action::Exchange(_) => Kind::Exchange,
        }
    }

    fn of_kernel(kernel: &Kernel) -> Self {
        match kernel {
            Kernel::Op(OpKernel { pass: Pass::Max | Pass::Sum | Pass::Forward, .. }) => Kind::Forward,
            Kernel::Op(OpKernel { pass: Pass::BackwardInput | Pass::BackwardWeight, .. }) => Kind::Backward,
            Kernel::Add { .. } => Kind::Backward,
            Kernel::Slice { .. } | Kernel::Pack { .. } | Kernel::Unpack { .. } | Kernel::Load { .. } => {
                Kind::Rearrange
            }
            Kernel::SumSquares { .. } | Kernel::Update { .. } => Kind::Optimizer,
        }
    }

    /// Class in the stylesheet, and word in the legend.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Forward => "forward",
            Kind::Backward => "backward",
            Kind::Collective => "collective",
            Kind::Exchange => "exchange",
            Kind::Optimizer => "optimizer",
            Kind::Rearrange => "rearrange",
        }
    }
}

/// A legend of filled swatches: `(class, words)`.
pub(crate) fn legend<'a>(items: impl IntoIterator<Item = (&'a str, &'a str)>) -> Markup {
    html! {
        ul.legend { @for (class, words) in items {
            li { (swatch(class)) (words) }
        } }
    }
}

/// A small rectangle in the fill of a class.
pub(crate) fn swatch(class: &str) -> Markup {
    html! { svg.swatch width="28" height="14" aria-hidden="true" { g class=(class) { rect width="28" height="14" {} } } }
}
