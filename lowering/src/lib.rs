//! Plan to Program: replays recorded choices, places schedules and messages.
