//! Lines of text with cells in columns.

/// Pads the cells of all lines to columns, joined by two spaces. The first line may hold the headings. Each line has
/// one cell for each entry of `is_left`, which is true for a column aligned to the left.
pub fn aligned(lines: &[Vec<&str>], is_left: &[bool]) -> Vec<String> {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let columns: Vec<_> = is_left.iter().enumerate().map(|(column, is_left)| (width(column), *is_left)).collect();
    let padded = |(cell, (width, is_left)): (&&str, &(usize, bool))| match is_left {
        true => format!("{cell:<width$}"),
        false => format!("{cell:>width$}"),
    };
    let line = |cells: &Vec<&str>| {
        let cells: Vec<_> = cells.iter().zip(&columns).map(padded).collect();
        cells.join("  ").trim_end().to_owned()
    };
    lines.iter().map(line).collect()
}
