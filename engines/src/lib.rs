//! Other training engines: their legality rules, and their configurations as input and output. **Nothing is built yet.**
//! This page says what will stand here, so that it lands in the right place.
//!
//! # What it will hold
//!
//! One file per engine (Megatron-LM, MindSpeed, torchtitan, DeepSpeed, …) and one table of them. A file has three parts:
//!
//! - **Rules.** What the engine accepts, as functions from a plan or a parsed configuration to problems. A problem names its
//!   rule, says what was found, and gives the nearest value that would be legal. Each rule carries the range of versions it
//!   holds for and the place in the engine's source or documentation it was read from.
//! - **Import.** The engine's own configuration (command lines, YAML, JSON) to the nouns of `meshwright-ir`: the degrees,
//!   the batch, the schedule, the precision. What a configuration leaves out takes the engine's documented default, and is
//!   listed as assumed.
//! - **Export.** A plan to the files that launch it: the configuration, a launch script, and the warnings for whatever the
//!   engine cannot express. An import of an export gives the same plan back.
//!
//! `plan` with a target will apply the rules while it enumerates, so that what it finds can be exported; `check` and
//! `export` will call the rest.
//!
//! # What it will not hold
//!
//! - No costs and no search: whether a legal configuration is fast, or fits, is for others to say.
//! - No files: text in, text out. Reading and writing are the command line's.
//! - No rule without a version range and a source. An engine's rule that cannot be cited is not a rule here.
//! - No copy of an engine's code or prose.
//!
//! Until then a job's `search.target` is `any` or `meshwright`; another engine's name is refused with a message, as are
//! the commands `check` and `export`.
