//! Lists of CPUs as Linux writes them, such as `0-3,8`.

use std::collections::BTreeSet;

/// Parses a list of CPUs in Linux's format; invalid parts are ignored.
pub fn cpu_list(text: &str) -> BTreeSet<usize> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flat_map(|range: std::ops::RangeInclusive<usize>| range.take(1 << 16)).collect()
}

/// Formats a list of CPUs as Linux does. The text is empty if there are no CPUs.
pub(crate) fn cpu_ranges(cpus: &BTreeSet<usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let word =
        |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    ranges.into_iter().map(word).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read_and_written() {
        let list = cpu_list("0-2,8\n");
        assert_eq!(list, BTreeSet::from([0, 1, 2, 8]));
        assert_eq!(cpu_ranges(&list), "0-2,8");
        assert!(cpu_list("").is_empty() && cpu_list("x-y").is_empty());
        assert_eq!(cpu_ranges(&BTreeSet::new()), "");
    }
}
