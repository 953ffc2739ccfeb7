//! Looks for extents that can be written in place (`data/nocow`), counted by their outcome ([`NocowStatistics`](crate::NocowStatistics)).

use super::declare::counters;

counters! {
    /// Counters of looks for extents that can be written in place.
    live Nocow,
    /// Their values at one moment.
    values NocowCounters
    {
        written,
        shared,
        with_csums,
        no_group,
        barred,
        searched_again,
        looks_with_leaf,
    }
}
