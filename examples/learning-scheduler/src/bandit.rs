//! One arm of a linear bandit with an upper confidence bound (`LinUCB`).
//!
//! For a context `x` the arm's value is `theta.x + alpha * sqrt(x' A^-1 x)` with `theta = A^-1 b`:
//! what rewards make it expect, and how unsure it still is. A reward `r` adds `xx'` to `A` and `rx`
//! to `b`. The inverse is kept up to date by the formula of Sherman and Morrison, so that no system
//! is solved: N squared multiplications per reward.

/// An arm for contexts of `N` numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arm<const N: usize> {
    inverse: [[f64; N]; N],
    b: [f64; N],
}

/// The inverse is kept below this, or forgetting would let it grow without end in directions that
/// no context ever has.
const INVERSE_MAX: f64 = 100.0;

impl<const N: usize> Default for Arm<N> {
    fn default() -> Self {
        let mut inverse = [[0.0; N]; N];
        for (at, row) in inverse.iter_mut().enumerate() {
            row[at] = 1.0;
        }
        Self {
            inverse,
            b: [0.0; N],
        }
    }
}

impl<const N: usize> Arm<N> {
    /// What the arm promises in this context; `alpha` says how much doubt counts.
    pub fn value(&self, x: &[f64; N], alpha: f64) -> f64 {
        let known = self.times_inverse(x);
        let expected = dot(&self.b, &known);
        expected + alpha * dot(x, &known).max(0.0).sqrt()
    }

    /// What the arm expects without regard to doubt.
    pub fn expected(&self, x: &[f64; N]) -> f64 {
        dot(&self.b, &self.times_inverse(x))
    }

    /// Learns that the arm earned `reward` in this context.
    pub fn reward(&mut self, x: &[f64; N], reward: f64) {
        let known = self.times_inverse(x);
        let scale = 1.0 / (1.0 + dot(x, &known));
        for (row, left) in self.inverse.iter_mut().zip(&known) {
            for (cell, right) in row.iter_mut().zip(&known) {
                *cell -= left * right * scale;
            }
        }
        for (b, x) in self.b.iter_mut().zip(x) {
            *b += reward * x;
        }
    }

    /// Lets what was learnt fade to this part of itself: `A` and `b` shrink alike.
    pub fn forget(&mut self, part: f64) {
        let largest = (0..N).map(|at| self.inverse[at][at]).fold(0.0, f64::max);
        if largest / part > INVERSE_MAX {
            return;
        }
        self.inverse
            .iter_mut()
            .flatten()
            .for_each(|cell| *cell /= part);
        self.b.iter_mut().for_each(|b| *b *= part);
    }

    fn times_inverse(&self, x: &[f64; N]) -> [f64; N] {
        self.inverse.map(|row| dot(&row, x))
    }
}

fn dot<const N: usize>(a: &[f64; N], b: &[f64; N]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_rewarded_arm_beats_an_unknown_one() {
        let x = [1.0, 0.0];
        let mut wait = Arm::<2>::default();
        wait.reward(&x, 1.0);
        assert!((wait.value(&x, 0.75) - 1.030).abs() < 0.001);
        assert!((Arm::<2>::default().value(&x, 0.75) - 0.750).abs() < 1e-9);
    }

    #[test]
    fn doubt_goes_down_with_each_reward_and_up_again_with_time() {
        let x = [1.0, 0.5];
        let mut arm = Arm::<2>::default();
        let doubt = |arm: &Arm<2>| arm.value(&x, 1.0) - arm.expected(&x);
        let fresh = doubt(&arm);
        arm.reward(&x, 0.0);
        let learnt = doubt(&arm);
        assert!(learnt < fresh);
        arm.forget(0.5);
        assert!(doubt(&arm) > learnt);
        for _ in 0..100_000 {
            arm.forget(0.999);
        }
        assert!(arm.value(&x, 1.0).is_finite());
    }

    /// The same arm with `A` itself, and each question answered by elimination.
    struct Naive {
        a: [[f64; 3]; 3],
        b: [f64; 3],
    }

    impl Naive {
        fn solve(&self, x: [f64; 3]) -> [f64; 3] {
            let (mut a, mut y) = (self.a, x);
            for column in 0..3 {
                for row in column + 1..3 {
                    let factor = a[row][column] / a[column][column];
                    let (upper, lower) = a.split_at_mut(row);
                    for (cell, above) in lower[0].iter_mut().zip(&upper[column]) {
                        *cell -= factor * above;
                    }
                    y[row] -= factor * y[column];
                }
            }
            for row in (0..3).rev() {
                for right in row + 1..3 {
                    y[row] -= a[row][right] * y[right];
                }
                y[row] /= a[row][row];
            }
            y
        }
    }

    proptest! {
        #[test]
        fn the_kept_inverse_is_the_inverse(
            rewards in prop::collection::vec(
                (prop::array::uniform3(-1.0_f64..1.0), 0.0_f64..1.0),
                0..60,
            ),
            x in prop::array::uniform3(-1.0_f64..1.0),
        ) {
            let mut arm = Arm::<3>::default();
            let mut naive = Naive {
                a: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
                b: [0.0; 3],
            };
            for (context, reward) in rewards {
                arm.forget(0.999);
                naive.a.iter_mut().flatten().for_each(|cell| *cell *= 0.999);
                naive.b.iter_mut().for_each(|b| *b *= 0.999);
                arm.reward(&context, reward);
                for (row, left) in naive.a.iter_mut().zip(&context) {
                    for (cell, right) in row.iter_mut().zip(&context) {
                        *cell += left * right;
                    }
                }
                for (b, x) in naive.b.iter_mut().zip(&context) {
                    *b += reward * x;
                }
            }
            let theta = naive.solve(naive.b);
            prop_assert!((arm.expected(&x) - dot(&theta, &x)).abs() < 1e-6);
            let doubt = dot(&x, &naive.solve(x)).max(0.0).sqrt();
            prop_assert!((arm.value(&x, 1.0) - dot(&theta, &x) - doubt).abs() < 1e-6);
        }
    }
}
