//! From `-r` and `--replicate` to the degree of every rank.

use command_line::UsageError;
use redrt_types::World;

const DEGREE_MAX: u16 = World::DEGREE_MAX;

/// The world of `rank_count` ranks.
pub fn world(rank_count: u32, degree: Option<&str>, replicate: Option<&str>) -> Result<World, UsageError> {
    let mut degrees = match degree {
        Some(text) => average(rank_count, text)?,
        None => vec![1; rank_count as usize],
    };
    let mut is_named = vec![false; rank_count as usize];
    for item in replicate.into_iter().flat_map(|list| list.split(',')) {
        let (first, last, degree) = parse_item(item)?;
        if last >= rank_count {
            return Err(UsageError(format!("--replicate {item}: the job has only ranks 0 to {}", rank_count - 1)));
        }
        let range = first as usize..=last as usize;
        if let Some(again) = range.clone().find(|rank| is_named[*rank]) {
            return Err(UsageError(format!("--replicate {item}: rank {again} is named twice")));
        }
        is_named[range.clone()].fill(true);
        degrees[range].fill(degree);
    }
    Ok(World::new(degrees))
}

/// Gives all ranks the whole part of R, and the first ones one more, until the average is R.
fn average(rank_count: u32, text: &str) -> Result<Vec<u16>, UsageError> {
    let wrong = |why: &str| UsageError(format!("-r {text}: {why}"));
    let average: f64 = text.parse().map_err(|_| wrong("not a number of replicas"))?;
    if !average.is_finite() || average < 1.0 {
        return Err(wrong("every rank needs at least one replica"));
    }
    if average > f64::from(DEGREE_MAX) {
        return Err(wrong(&format!("more than {DEGREE_MAX} replicas of a rank")));
    }
    let whole = average.floor();
    let with_one_more = ((average - whole) * f64::from(rank_count)).round() as u32;
    Ok((0..rank_count).map(|rank| whole as u16 + u16::from(rank < with_one_more)).collect())
}

/// Parses `FIRST-LAST:R` or `RANK:R`.
fn parse_item(item: &str) -> Result<(u32, u32, u16), UsageError> {
    let wrong = |why: &str| UsageError(format!("--replicate {item}: {why}"));
    let form = "expected RANKS:R, for example 0-3:2";
    let (ranks, degree) = item.split_once(':').ok_or_else(|| wrong(form))?;
    let degree = degree.parse().map_err(|_| wrong(form))?;
    if !(1..=DEGREE_MAX).contains(&degree) {
        return Err(wrong(&format!("a rank has 1 to {DEGREE_MAX} replicas")));
    }
    let (first, last) = ranks.split_once('-').unwrap_or((ranks, ranks));
    let (first, last) = (first.parse().map_err(|_| wrong(form))?, last.parse().map_err(|_| wrong(form))?);
    if first > last { Err(wrong("the range is backwards")) } else { Ok((first, last, degree)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degrees(world: &World) -> Vec<u16> {
        (0..world.rank_count()).map(|rank| world.degree(redrt_types::VirtualRank(rank))).collect()
    }

    #[test]
    fn degrees_by_average_and_by_range() {
        let of = |count, degree, replicate| degrees(&world(count, degree, replicate).unwrap());
        assert_eq!(of(3, None, None), [1, 1, 1]);
        assert_eq!(of(2, Some("3"), None), [3, 3]);
        assert_eq!(of(4, Some("1.5"), None), [2, 2, 1, 1]);
        assert_eq!(of(3, Some("2.34"), None), [3, 2, 2]);
        assert_eq!(of(4, None, Some("0-1:3,3:2")), [3, 3, 1, 2]);
        assert_eq!(of(4, Some("2"), Some("2-3:1")), [2, 2, 1, 1]);
    }

    #[test]
    fn wrong_degrees_are_refused() {
        for (degree, replicate) in [
            (Some("0"), None),
            (Some("0.9"), None),
            (Some("two"), None),
            (Some("NaN"), None),
            (Some("-1"), None),
            (Some("1e9"), None),
            (None, Some("0-4:2")),
            (None, Some("0:0")),
            (None, Some("3-1:2")),
            (None, Some("0-1")),
            (None, Some("")),
        ] {
            assert!(world(4, degree, replicate).is_err(), "{degree:?} {replicate:?}");
        }
    }
}
