"""Fits over clients: the same releases as in memory, sums over those who finish, and noise that clients draw."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from apportion import linalg
from apportion.allocation import SplitEqually
from apportion.auditing.hidden_values import raw_steps
from apportion.engines import LocalEngine
from apportion.errors import BudgetError, InputError
from apportion.federated import FederatedEngine, NoisyClientsEngine, RefusedError, SimulatedClients, Stage, Trust
from apportion.privacy import Budget, Laplace, SeededNoise, Session
from apportion.privacy.contributions import ClippedParts, Output, PartialSums, TaskCounts
from apportion.recommend import PrivateRatingRecommender
from apportion.statistics import UserMean
from contribution_cases import rows_and_totals

from strategies import random_interactions

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")
COUNTS = (TaskCounts(SplitEqually()),)


def people(n_users=30):
    return random_interactions(5, n_users=n_users, n_tasks=6)


def fitted(engine):
    made = PrivateRatingRecommender(epsilon=5.0, dimension=2, rounds=1, noise=SeededNoise(1, exact=True), engine=engine)
    return made.set_params(items="from-data").fit(people())


def test_a_fit_over_clients_releases_what_a_fit_in_memory_does():
    here = fitted(LocalEngine(np.float64, exact=True))
    there = fitted(FederatedEngine(Trust(5, dropping=0), dtype=np.float64))
    np.testing.assert_array_equal(here.model_.vectors, there.model_.vectors)
    np.testing.assert_array_equal(here.model_.popularity, there.model_.popularity)
    assert here.statement_.releases == there.statement_.releases


def test_the_statement_says_against_whom_the_guarantee_holds():
    statement = fitted(FederatedEngine(Trust(5, dropping=0), dtype=np.float64)).statement_
    assert "Not protected: anything against the server, which draws the noise" in statement.to_text()
    assert "exact sums over at least 5 of 5 clients" in statement.to_text()


def test_sums_cover_the_clients_who_finish():
    users = people().as_users
    engine = FederatedEngine(Trust(6, dropping=2), SimulatedClients({1: Stage.MASK, 4: Stage.SHARE}))
    (total,) = engine.add_up(users, COUNTS)
    staying = [run for each, run in enumerate(users.cut(6)) if each not in (1, 4)]
    wanted = sum(raw_steps(*LocalEngine(exact=True).add_up(run, COUNTS)) for run in staying)
    np.testing.assert_array_equal(raw_steps(total), wanted)


def test_a_pass_with_too_few_clients_charges_nothing_where_the_server_draws():
    session = Session(Budget(1.0, 1e-6))
    engine = FederatedEngine(Trust(6, dropping=1), SimulatedClients({1: Stage.MASK, 4: Stage.SHARE}))
    with pytest.raises(RefusedError, match="Only 4 clients are left"):
        session.release("counts", *engine.add_up(people().as_users, COUNTS), session.plan(all=1.0).one("all"))
    assert session.spent == 0


def test_a_pass_that_fails_after_the_charge_stays_charged_where_clients_draw():
    session = Session(Budget(1.0, 1e-6))
    engine = NoisyClientsEngine(Trust(6, dropping=1), SimulatedClients({1: Stage.MASK, 4: Stage.SHARE}))
    (counts,) = engine.add_up(people().as_users, COUNTS)
    with pytest.raises(RefusedError, match="Only 4 clients are left"):
        session.release("counts", counts, session.plan(all=0.5).one("all"))
    assert session.spent == pytest.approx(0.5)


def release(engine, users, session):
    (counts,) = engine.add_up(users, COUNTS)
    return session.release("counts", counts, session.plan(all=0.5).one("all"))


def test_noise_of_all_clients_who_finish_is_in_a_release():
    # 600 tasks; false alarm 1e-9; half the noise is seen with a probability above 0.999.
    users = random_interactions(5, n_users=30, n_tasks=600).as_users
    session = Session(Budget(1.0, 1e-6))
    trust = Trust(6, colluding=1, dropping=2)
    released = release(NoisyClientsEngine(trust), users, session)
    (exact,) = LocalEngine(exact=True).add_up(users, COUNTS)
    stated = session.statement().releases[0].stddev
    energy = np.square((released - raw_steps(exact) * exact.step) / stated).sum() * trust.counted / 6
    low, high = chi2.isf([1 - 0.5e-9, 0.5e-9], users.n_tasks)
    assert trust.counted == 2
    assert low < energy < high
    assert chi2.cdf(low * 2, users.n_tasks) > 0.999


def test_a_sum_that_nobody_holds_cannot_be_read_or_released_by_other_mechanisms():
    engine, session = NoisyClientsEngine(Trust(6)), Session(Budget(1.0, 0.0))
    (counts,) = engine.add_up(people().as_users, COUNTS)
    with pytest.raises(TypeError, match="nobody holds it without noise"):
        raw_steps(counts)
    with pytest.raises(BudgetError, match="needs the sum itself, and clients send it with Gaussian noise only"):
        session.release_with(Laplace(), "counts", counts, session.plan(all=0.5).one("all"))
    assert session.spent == 0


def test_each_of_several_sums_is_drawn_in_its_own_release():
    outputs = (Output(3, 2.5, True, "rows"), Output(2, 4.0, False, "totals"))
    contribution = ClippedParts(rows_and_totals, outputs, SplitEqually())
    users, session = people().as_users, Session(Budget(1e6, 1e-6))
    sums = NoisyClientsEngine(Trust(4, dropping=0)).add_up(users, [contribution])
    exact = LocalEngine(exact=True).add_up(users, [contribution])
    for name, drawn, known in zip(("rows", "totals"), sums, exact, strict=True):
        released = session.release(name, drawn, session.plan(all=0.4).one("all"))
        noise = session.statement().releases[-1].stddev
        np.testing.assert_allclose(released, raw_steps(known) * known.step, atol=20 * noise)


def test_a_mean_over_clients_who_draw_says_so():
    rows = np.linspace(0, 1, 40)
    mean = UserMean(5.0, 1e-6, value_range=(0.0, 1.0), sizes="private", engine=NoisyClientsEngine(Trust(8)))
    fitted = mean.fit(rows, users=np.repeat(np.arange(20), 2))
    assert "up to 1 of 8 clients who collude" in fitted.statement_.to_text()
    assert "the contribution of one user at one client is zero" in fitted.statement_.to_text()


@pytest.mark.parametrize(("n_clients", "colluding", "dropping"), [(4, 2, 1), (3, 1, 1), (6, 0, 5)])
def test_numbers_that_leave_no_other_honest_client_are_refused(n_clients, colluding, dropping):
    with pytest.raises(InputError, match="at least 2 honest clients who stay"):
        Trust(n_clients, colluding, dropping)
    assert Trust(n_clients + 1, colluding, dropping).counted >= 1


def test_a_client_with_too_many_users_for_64_bits_is_refused():
    sums = PartialSums([(np.full(3, 2**40),)], 1)
    with pytest.raises(ArithmeticError, match="than each of 8388608 clients may add within 64 bits"):
        sums.masked(np.zeros(3, np.uint64), 2**23)
