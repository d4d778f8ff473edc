//! Program and costs to a predicted Trace.
