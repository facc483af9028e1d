//! Turns a binary PPM picture, as the heat program writes it, into a PNG: `ppm2png IN.ppm OUT.png`.

use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::io::BufWriter;

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [from, to] = &arguments[..] else { bail!("usage: ppm2png IN.ppm OUT.png") };
    let bytes = fs::read(from).with_context(|| format!("Failed to read {}", from.display()))?;
    let (width, height, pixels) = parse(&bytes).with_context(|| format!("{} is no picture", from.display()))?;
    let file = File::create(to).with_context(|| format!("Failed to create {}", to.display()))?;
    let mut encoder = png::Encoder::new(BufWriter::new(file), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish().with_context(|| format!("Failed to write {}", to.display()))
}

/// Width, height and RGB bytes of a PPM with one byte a colour and no comments.
fn parse(bytes: &[u8]) -> Result<(u32, u32, &[u8])> {
    let mut fields = bytes.splitn(5, |byte| byte.is_ascii_whitespace());
    let mut field = || fields.next().context("it ends in its header");
    ensure!(field()? == b"P6", "it does not begin with P6");
    let mut number = || -> Result<u32> { Ok(std::str::from_utf8(field()?)?.parse()?) };
    let (width, height, most) = (number()?, number()?, number()?);
    ensure!(most == 255, "its colours go to {most}, not 255");
    let pixels = field()?;
    let expected = 3 * width as usize * height as usize;
    ensure!(pixels.len() == expected, "{} bytes of pixels instead of {expected}", pixels.len());
    Ok((width, height, pixels))
}
