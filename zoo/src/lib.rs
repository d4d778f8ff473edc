//! The zoo: what turns a user's files and preset names into nouns. Reading is here and nowhere else; every value handed
//! out has passed its noun's `check`, and every refusal is a [`ZooError`] that names the file, the field and the fix.

mod clusters;
mod error;
mod job;
mod models;
mod source;
mod toml_text;

pub use clusters::{
    Constants, DeviceConstants, LevelConstants, apply_constants, cluster, cluster_for, cluster_from_toml,
    cluster_presets, constants, constants_from_toml, host_profile, localhost, resize,
};
pub use error::ZooError;
pub use job::{job_file, job_from_toml, merge, resolve, resolve_cluster};
pub use models::{families, model, model_from_config, model_from_toml, model_presets};
pub use source::{hash, nearest};
