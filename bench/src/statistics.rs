//! Figures out of many measurements.

use std::time::Duration;

/// The value that as many are above as below; of an even number, the mean of the two in the middle.
///
/// # Panics
/// Of nothing: a row that has measured nothing has no figure.
pub(crate) fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// The smallest value that so many in a hundred do not exceed.
///
/// # Panics
/// Of nothing.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let sorted = sorted(values);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted[rank.saturating_sub(1)]
}

fn sorted(values: &[f64]) -> Vec<f64> {
    assert!(!values.is_empty(), "there is no median of nothing");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// How many a second.
pub(crate) fn rate(count: usize, time: Duration) -> f64 {
    float(count) / time.as_secs_f64()
}

/// A count as a number to divide.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these figures are exact")]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200).map(float).collect();
        assert_eq!(percentile(&values, 99), 198.0);
        assert_eq!(percentile(&values, 100), 200.0);
        assert_eq!(percentile(&[7.0], 99), 7.0);
    }

    #[test]
    fn a_rate_is_per_second() {
        assert_eq!(rate(500, Duration::from_millis(250)), 2_000.0);
    }
}
