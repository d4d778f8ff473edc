//! The nouns of Meshwright: what every other crate passes to its neighbours. Accessors and checks only: nothing here
//! reads a file, a clock or a device. The one invariant of the crate: a value that was constructed or deserialised is
//! well formed, or its `check` says which field is not.

mod cluster;
mod document;
mod dtype;
mod invalid;
mod job;
mod layout;
mod load;
mod mesh;
mod model;
mod op;
mod pin;
mod plan;
pub mod program;
mod search;
mod storage;
pub mod trace;
mod trace_views;
mod units;

pub use cluster::{Cluster, ClusterGraph, Curve, Device, DeviceKind, Host, Level, Vertex, WorkClass};
pub use document::{HostProfile, ProfileSample};
pub use dtype::{DType, Precision};
pub use invalid::Invalid;
pub use job::{
    Job, JobCluster, JobFile, JobModel, JobRun, JobSearch, JobTraining, Objective, Optimizer, Run, Search,
    Source, Training,
};
pub use layout::Layout;
pub use load::{AxisLoad, LevelLoad, Load};
pub use mesh::{Axis, AxisSet, Coords, Mesh};
pub use model::{BlockClass, BlockRun, Model, Node, Tie, Tower, Value};
pub use op::{
    ActivationKind, AttentionCore, Dropout, IdSource, Init, InputKind, NormKind, Op, ParamSpec, Real,
    RouteKind, ScanKind, ScoreBias, Scores, room,
};
pub use pin::{Comparison, Pin, PinKey};
pub use plan::{
    Algorithm, Alternative, Candidate, ClassPlan, Copy, GradientPath, Plan, Prediction, Recompute, Schedule,
    SearchReport, StagePlan, StateSharding, Step, Strategy, Use, ValuePlan,
};
pub use program::{Checked, Program};
pub use search::Need;
pub use storage::{Gathering, Storage};
pub use trace::Trace;
pub use trace_views::{ErrorByKind, IDLE, KindError};
pub use units::{Bandwidth, Bytes, FlopRate, Flops, Time};
