"""Slips that a tired engineer might make in the detector and the worker.

Few tests were written for one of these alone: ``test`` names one that notices it.
"""

from __future__ import annotations

from scripts.breaks.kind import Break

DT = "services/scar_detector/"
BLINDNESS = "tests/unit/test_detector_blindness.py"
DETECTOR = "tests/unit/test_detector.py"
DETECTOR_SERVICE = "tests/component/test_detector_service.py"

BREAKS = (
    # --- the detector
    # ----------------------------------------------------------------------------------------------------
    Break(
        "dt-policy",
        DT + "prober.py",
        "return ProbeAnswer.REFUSED if is_ours(host) else ProbeAnswer.REJECTED",
        "return ProbeAnswer.REFUSED",
        "tests/component/test_prober.py::test_elsewhere_a_closed_port_may_be_a_network_policy",
    ),
    Break(
        "dt-cut-off",
        DT + "prober.py",
        "        except _CUT_OFF:\n            frame = _read_greeting(member, host, int(port), end)\n",
        "        except _CUT_OFF:\n            return ProbeAnswer.SILENT\n",
        "tests/component/test_prober.py::test_a_member_that_dies_while_it_is_asked_is_proved_dead",
    ),
    Break(
        "dt-window",
        "services/scar_detector/core/phi.py",
        "        self._count(new, 1)\n        self._normal = None\n",
        "        self._count(new, 1)\n",
        "tests/unit/test_detector_phi.py::test_what_is_added_after_a_question_counts_in_the_next_answer",
    ),
    Break(
        "dt-floor",
        "services/scar_detector/core/phi.py",
        "max(self._floor, deviation)",
        "deviation or self._floor",
        f"{BLINDNESS}::test_two_late_looks_excuse_twice_as_much",
    ),
    Break(
        "dt-crowd",
        "services/scar_detector/core/detector.py",
        "2 * len(silent) > len(alive)",
        "len(silent) > len(alive)",
        f"{BLINDNESS}::test_most_members_silent_without_an_answer_accuses_nobody",
    ),
    Break(
        "dt-blind",
        "services/scar_detector/core/detector.py",
        "if self._blind or state.probing or state.urgent:",
        "if state.probing or state.urgent:",
        f"{BLINDNESS}::test_blind_nobody_is_accused_of_silence_however_often_he_does_not_answer",
    ),
    Break(
        "dt-late-self",
        "services/scar_detector/core/detector.py",
        "state.excused += min(",
        "state.excused = min(",
        f"{BLINDNESS}::test_two_late_looks_excuse_twice_as_much",
    ),
    Break(
        "dt-own-pause",
        "services/scar_detector/core/member_state.py",
        "        if self.is_accused:\n            self.accused_at += seconds\n",
        "        if False:\n            self.accused_at += seconds\n",
        "tests/unit/test_detector.py::test_our_own_pause_is_no_sign_of_life_of_the_accused",
    ),
    Break(
        "dt-lease-block",
        "services/scar_detector/core/detector.py",
        "state.lease_block = LeaseBlock.SET if event.done else LeaseBlock.NONE",
        "state.lease_block = LeaseBlock.SET",
        "tests/unit/test_detector.py::test_a_block_that_could_not_be_set_is_asked_for_again",
    ),
    Break(
        "dt-hung-up",
        "services/scar_detector/core/member_state.py",
        "(self.answer is ProbeAnswer.REJECTED and self.hung_up)",
        "self.answer is ProbeAnswer.REJECTED",
        f"{DETECTOR}::test_what_stands_in_between_proves_nothing",
    ),
    Break(
        "dt-behind",
        DT + "monitor.py",
        "if standing.lease_blocked or standing.epoch > epoch:",
        "if standing.epoch > epoch:",
        f"{DETECTOR_SERVICE}::test_beats_sent_to_a_detector_reach_redis_and_are_refused_when_redis_says_so",
    ),
    Break(
        "dt-pause",
        DT + "core/reports.py",
        "now + report.pause * _jitter(number)",
        "now + report.pause",
        "tests/unit/test_reporter.py::test_reports_of_members_that_died_together_come_again_apart",
    ),
    Break(
        "dt-withdrawn",
        DT + "core/reports.py",
        "            if report.accusation.member == member:\n                del self._pending[number]\n",
        "            assert number\n",
        "tests/unit/test_reporter.py::test_a_report_that_is_withdrawn_is_not_sent_again",
    ),
    Break(
        "dt-streams",
        "services/scar_detector/core/detector.py",
        "state.urgent or not state.misses or (event.hung_up and not state.hung_up)",
        "True",
        f"{DETECTOR}::test_streams_that_break_again_and_again_do_not_put_off_an_accusation",
    ),
    # --- the worker
    # ------------------------------------------------------------------------------------------------------
    Break(
        "wk-failed",
        "services/scar_worker/task.py",
        "                self._enter_state(TaskState.FAILED)\n",
        "",
        "tests/component/test_client_worker.py::test_an_error_of_the_user",
    ),
    Break(
        "fd-once",  # who was accused once and came back for a moment is dropped from view
        "services/scar_detector/core/detector.py",
        " or (gone and lived)",
        "",
        "tests/unit/test_detector.py::test_a_member_that_comes_back_for_a_moment_and_dies_is_accused_again",
    ),
    Break(
        "fd-late-read",  # every second dead member was called alive again, and accused once more
        "services/scar_detector/core/detector.py",
        " and not state.is_proved_dead)",
        ")",
        "tests/unit/test_detector.py::test_the_last_heartbeat_of_a_dead_member_may_be_read_after_the_proof",
    ),
)
