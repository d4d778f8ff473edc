//! Values to documents: HTML, charts, JSON.
