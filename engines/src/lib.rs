//! Other training engines: legality rules, import and export of their configurations.
