//! Arithmetic in scenario files: `=rtt * scale / 2`.
//!
//! ```text
//! sum     = product { ("+" | "-") product }
//! product = value { ("*" | "/") value }
//! value   = name | number unit | "(" sum ")"
//! ```
//! Operators stand between spaces, so that names may contain dashes.

use super::quantity::{Dimension, Quantity, QuantityError};

/// Deeper than anyone nests; the parser recurses.
const MAX_DEPTH: u32 = 16;

type Outcome = Result<Quantity, QuantityError>;

/// The value of an expression.
pub(super) fn evaluate(text: &str, parameter: &dyn Fn(&str) -> Outcome) -> Outcome {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let mut parser = Parser {
        text: text.trim(),
        words: spaced.split_whitespace().collect(),
        at: 0,
        depth: 0,
        parameter,
    };
    let value = parser.sum()?;
    match parser.peek() {
        None => Ok(value),
        Some(word) => Err(parser.error(&format!("`{word}` was not expected"))),
    }
}

struct Parser<'a> {
    text: &'a str,
    words: Vec<&'a str>,
    at: usize,
    depth: u32,
    parameter: &'a dyn Fn(&str) -> Outcome,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn error(&self, what: &str) -> QuantityError {
        QuantityError {
            what: format!("cannot work out \"={}\": {what}", self.text),
            hint: None,
        }
    }

    fn sum(&mut self) -> Outcome {
        let mut left = self.product()?;
        while let Some(operator @ ("+" | "-")) = self.peek() {
            self.at += 1;
            let right = self.product()?;
            if left.dimension != right.dimension {
                return Err(self.error("only quantities of one kind can be added"));
            }
            left.amount += if operator == "+" {
                right.amount
            } else {
                -right.amount
            };
        }
        Ok(left)
    }

    fn product(&mut self) -> Outcome {
        let mut left = self.value()?;
        while let Some(operator @ ("*" | "/")) = self.peek() {
            self.at += 1;
            let right = self.value()?;
            let combined = if operator == "*" {
                multiply(left, right)
            } else {
                divide(left, right)
            };
            left = combined.ok_or_else(|| self.error("this product has no meaning here"))?;
        }
        Ok(left)
    }

    fn value(&mut self) -> Outcome {
        let Some(word) = self.peek() else {
            return Err(self.error("a value is missing"));
        };
        self.at += 1;
        if word == "(" {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(self.error("too many parentheses"));
            }
            let value = self.sum()?;
            if self.peek() != Some(")") {
                return Err(self.error("a `)` is missing"));
            }
            self.at += 1;
            self.depth -= 1;
            return Ok(value);
        }
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return Quantity::literal(word);
        }
        (self.parameter)(word)
    }
}

fn multiply(a: Quantity, b: Quantity) -> Option<Quantity> {
    use Dimension::{Bare, Rate, Size, Time};
    let amount = a.amount * b.amount;
    let (amount, dimension) = match (a.dimension, b.dimension) {
        (other, Bare) | (Bare, other) => (amount, other),
        (Rate, Time) | (Time, Rate) => (amount / 8.0, Size),
        _ => return None,
    };
    amount.is_finite().then_some(Quantity { amount, dimension })
}

fn divide(a: Quantity, b: Quantity) -> Option<Quantity> {
    use Dimension::{Bare, Rate, Size, Time};
    let amount = a.amount / b.amount;
    let (amount, dimension) = match (a.dimension, b.dimension) {
        (x, y) if x == y => (amount, Bare),
        (other, Bare) => (amount, other),
        (Size, Time) => (amount * 8.0, Rate),
        (Size, Rate) => (amount * 8.0, Time),
        _ => return None,
    };
    amount.is_finite().then_some(Quantity { amount, dimension })
}
