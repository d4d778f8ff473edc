//! The nouns: units, mesh, layout, model, cluster, job, plan, program, trace.
