"""The gymnasium environment."""

import threading
import warnings

import gymnasium
import numpy
import pytest
from gymnasium.utils.env_checker import check_env

import anabranch as ab
from anabranch.learning import FEATURES, PathEnv


def play(env, seed, choose):
    """Plays one run; returns rewards and the last info."""
    observation, info = env.reset(seed=seed)
    rewards = []
    for _ in range(100_000):
        observation, reward, terminated, truncated, info = env.step(choose(observation, info))
        rewards.append(reward)
        if terminated or truncated:
            return rewards, info, terminated
    raise AssertionError("a run without an end")


def fastest(observation, info):
    """The ready path with the lowest RTT."""
    ready = [path for path in range(len(observation)) if info["action_mask"][path]]
    rtt = FEATURES.index("smoothed_rtt")
    return min(ready, key=lambda path: observation[path][rtt], default=len(observation))


@pytest.fixture
def env(two):
    env = PathEnv(two, paths=2)
    yield env
    env.close()


def test_the_checker_of_gymnasium_accepts_it(two):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(PathEnv(two, paths=2), skip_render_check=True)


def test_a_seed_and_the_same_actions_give_the_same_run(env):
    first, second = play(env, 3, fastest), play(env, 3, fastest)
    assert first[0] == second[0]
    assert first[1]["run"]["trace_hash"] == second[1]["run"]["trace_hash"]
    other = play(env, 4, fastest)
    assert other[1]["run"]["trace_hash"] != first[1]["run"]["trace_hash"]


def test_the_rewards_of_a_run_are_its_time(env):
    rewards, info, terminated = play(env, 1, fastest)
    assert terminated and info["run"]["status"] == "ok"
    assert len(rewards) > 300 and all(reward <= 0 for reward in rewards)
    assert -sum(rewards) == pytest.approx(info["now"], abs=0.2)
    assert info["run"]["completion_s"] > 0.2


def test_an_action_may_hold_for_an_interval(two):
    env = PathEnv(two, paths=2, every=0.05)
    rewards, info, terminated = play(env, 1, fastest)
    assert terminated and 3 < len(rewards) < 100
    env.close()


def test_a_scenario_that_runs_out_of_time_is_truncated(two):
    env = PathEnv(two.with_value("stop", "200ms"), paths=2)
    _, info, terminated = play(env, 1, fastest)
    assert not terminated and info["run"]["status"] == "timeout"
    env.close()


def test_a_run_that_is_left_leaves_no_thread_behind(env):
    before = threading.active_count()
    for seed in range(5):
        env.reset(seed=seed)
        env.step(0)
    env.close()
    assert threading.active_count() <= before + 1


def test_what_cannot_be_done_is_refused(two, env):
    env.reset(seed=1)
    with pytest.raises(ValueError, match="expected from 0 to 2"):
        env.step(3)
    env.close()
    with pytest.raises(ab.RunError, match="call reset"):
        env.step(0)
    for words in ({"paths": 0}, {"paths": 17}, {"every": 0.0}):
        with pytest.raises(ValueError, match="expected"):
            PathEnv(two, **words)


def test_observations_have_what_the_view_has(env):
    observation, info = env.reset(seed=1)
    assert isinstance(env, gymnasium.Env)
    assert observation.shape == (2, len(FEATURES)) and observation.dtype == numpy.float32
    assert observation[0][FEATURES.index("room")] > 1
    assert info["action_mask"].tolist()[2] == 1
