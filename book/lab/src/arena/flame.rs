//! Stacks as perf tells them, and a flame graph of them (Brendan Gregg, "The Flame Graph", CACM 59(6), 2016):
//! each box is a function, as wide as the share of the looks that found it on the stack, on top of the one
//! that called it.

use std::{collections::BTreeMap, fmt::Write};

/// The width of the picture, in its own units.
const WIDTH: f64 = 1000.0;
/// The height of a box.
const HEIGHT: f64 = 16.0;
/// Narrower boxes are left out: nobody could see them.
const NARROWEST: f64 = 1.0;
/// About the width of a letter.
const LETTER: f64 = 5.6;

/// A function in an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// `kernel`, the program, a library.
    pub object: String,
    /// Its name, without what the compiler adds.
    pub function: String,
}

/// How often each stack was seen, the outermost function first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks(BTreeMap<Vec<Frame>, u64>);

impl Stacks {
    /// All looks.
    pub fn looks(&self) -> u64 {
        self.0.values().sum()
    }

    /// Each stack, and how often it was seen.
    pub fn each(&self) -> impl Iterator<Item = (&[Frame], u64)> {
        self.0.iter().map(|(stack, looks)| (stack.as_slice(), *looks))
    }
}

/// What `perf script -F comm,ip,sym,dso` says: a line with the program's name, a line for each frame with the
/// innermost first, and an empty line.
pub fn parse(text: &str) -> Stacks {
    let mut stacks = Stacks::default();
    let mut stack = Vec::new();
    for line in text.lines().chain([""]) {
        if line.trim().is_empty() {
            if !stack.is_empty() {
                stack.reverse();
                *stacks.0.entry(std::mem::take(&mut stack)).or_default() += 1;
            }
        } else if line.starts_with(char::is_whitespace) {
            stack.extend(frame(line));
        }
    }
    stacks
}

/// `  ffffffff8110c0de tcp_sendmsg+0x1 ([kernel.kallsyms])`
fn frame(line: &str) -> Option<Frame> {
    let (_, rest) = line.trim().split_once(' ')?;
    let (function, object) = rest.rsplit_once(" (")?;
    let object = object.trim_end_matches(')');
    let object = match object.starts_with("[kernel") || object.starts_with("[guest.kernel") {
        true => "kernel",
        false => object.rsplit('/').next().unwrap_or(object),
    };
    let function = function.split("+0x").next().unwrap_or(function);
    // `.isra.0`, `.part.1`: what the compiler made of it.
    let function = function.split(".isra").next().unwrap_or(function);
    Some(Frame { object: object.into(), function: function.into() })
}

/// A box, and those on top of it.
#[derive(Debug, Default)]
struct Node<'a> {
    looks: u64,
    above: BTreeMap<&'a Frame, Node<'a>>,
}

/// The picture, as SVG that takes the colours of the page around it where it can.
pub fn draw(title: &str, stacks: &Stacks) -> String {
    let mut root = Node::default();
    for (stack, looks) in stacks.each() {
        root.looks += looks;
        let mut node = &mut root;
        for frame in stack {
            node = node.above.entry(frame).or_default();
            node.looks += looks;
        }
    }
    let all = root.looks.max(1) as f64;
    let mut boxes = Vec::new();
    lay(&root, 0, 0.0, WIDTH / all, &mut boxes);
    let levels = boxes.iter().map(|it| it.level).max().unwrap_or(0) + 1;
    let height = HEIGHT * (levels as f64 + 2.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"10\"><title>{}</title>\n\
         <text x=\"4\" y=\"12\" fill=\"currentColor\">{}</text>\n",
        escaped(title),
        escaped(title)
    );
    for one in &boxes {
        let y = height - HEIGHT * (one.level as f64 + 1.0);
        let percent = 100.0 * one.looks as f64 / all;
        let label = escaped(&one.frame.function);
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<g><title>{label} ({}): {percent:.1} %</title><rect x=\"{:.1}\" y=\"{y:.1}\" \
             width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\" stroke=\"currentColor\" stroke-width=\"0.5\"/>{}</g>",
            escaped(&one.frame.object),
            one.x,
            one.width,
            HEIGHT - 1.0,
            colour(&one.frame.object),
            inscription(one, y)
        );
    }
    svg + "</svg>\n"
}

struct Placed<'a> {
    frame: &'a Frame,
    looks: u64,
    level: usize,
    x: f64,
    width: f64,
}

fn lay<'a>(node: &Node<'a>, level: usize, x: f64, scale: f64, boxes: &mut Vec<Placed<'a>>) {
    let mut x = x;
    for (frame, above) in &node.above {
        let width = above.looks as f64 * scale;
        if width >= NARROWEST {
            boxes.push(Placed { frame, looks: above.looks, level, x, width });
            lay(above, level + 1, x, scale, boxes);
        }
        x += width;
    }
}

/// As much of the name as fits.
fn inscription(one: &Placed<'_>, y: f64) -> String {
    let letters = ((one.width - 6.0) / LETTER).max(0.0) as usize;
    let name = &one.frame.function;
    if letters < 4 {
        return String::new();
    }
    let shown: String = match name.chars().count() <= letters {
        true => name.clone(),
        false => name.chars().take(letters - 1).chain(['…']).collect(),
    };
    format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#000\">{}</text>",
        one.x + 3.0,
        y + HEIGHT - 5.0,
        escaped(&shown)
    )
}

/// Light enough for black letters on any page: the kernel, libraries, and the program itself.
fn colour(object: &str) -> &'static str {
    match object {
        "kernel" => "#b9c7ea",
        _ if object.contains(".so") || object.starts_with('[') => "#e3d9a8",
        _ => "#f3b98a",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "ch07 \n\
        \tffffffff8110c0de tcp_sendmsg+0x1 ([kernel.kallsyms])\n\
        \t    55d0c0de1234 http::head::parse (/somewhere/ch07)\n\
        \t    55d0c0de0000 main (/somewhere/ch07)\n\
        \n\
        ch07 \n\
        \t    55d0c0de0000 main (/somewhere/ch07)\n\
        \n\
        ch07 \n\
        \tffffffff8110c0de finish_task_switch.isra.0 ([kernel.kallsyms])\n\
        \t    55d0c0de0000 main (/somewhere/ch07)\n";

    #[test]
    fn stacks_are_read_outermost_first() {
        let stacks = parse(SCRIPT);
        assert_eq!(stacks.looks(), 3);
        let names: Vec<String> = stacks
            .each()
            .map(|(stack, _)| {
                stack.iter().map(|it| it.function.as_str()).collect::<Vec<_>>().join(";")
            })
            .collect();
        assert!(names.contains(&"main;http::head::parse;tcp_sendmsg".to_owned()), "{names:?}");
        assert!(names.contains(&"main;finish_task_switch".to_owned()), "{names:?}");
    }

    #[test]
    fn a_box_is_as_wide_as_its_share() {
        let svg = draw("A <title>", &parse(SCRIPT));
        assert!(svg.contains("<title>A &lt;title&gt;</title>"), "{svg}");
        assert!(svg.contains("main (ch07): 100.0 %"), "{svg}");
        assert!(svg.contains("tcp_sendmsg (kernel): 33.3 %"), "{svg}");
        assert!(svg.contains("width=\"1000.0\"") && svg.contains("width=\"333.3\""), "{svg}");
    }

    #[test]
    fn nothing_seen_is_an_empty_picture() {
        assert_eq!(parse("").looks(), 0);
        assert!(draw("nothing", &Stacks::default()).ends_with("</svg>\n"));
    }
}
