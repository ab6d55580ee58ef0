------------------------------- MODULE Trace -------------------------------
(***************************************************************************)
(* Whether a real run is a run of the model. tools/check_trace.py writes   *)
(* Observed from the step log of a ledger. TLC then looks for a behaviour  *)
(* of the model that makes these steps in this order. Between them it may  *)
(* make steps that the step log does not show.                             *)
(***************************************************************************)
EXTENDS Publication, Sequences, TLC

CONSTANT Observed   \* a sequence of records: the model's action, and what the ledger says after it

VARIABLE done       \* how many of the observed steps the model has made

AttemptIs(e) == attempts'[e.attempt].state = e.state /\ attempts'[e.attempt].nonce = e.nonce

Make(e) ==
    CASE e.action = "Acquire" -> Acquire(e.runner) /\ lease'.number = e.lease
      [] e.action = "Open" -> (\E r \in Runners : held[r] = e.lease /\ Open(r, e.chunk, e.attempt)) /\ AttemptIs(e)
      [] e.action = "HandIn" -> (\E r \in Runners : HandIn(r, e.attempt)) /\ AttemptIs(e)
      [] e.action = "Abort" -> (\E r \in Runners : Abort(r, e.attempt)) /\ AttemptIs(e)
      [] e.action = "Prove" -> Prove(e.attempt) /\ attempts'[e.attempt].proof = e.proof
      [] e.action = "EndVerification" -> EndVerification(e.attempt) /\ AttemptIs(e)
      [] e.action = "Swap" -> \E s \in Stewards : seen[s].attempt = e.attempt /\ Swap(s)
      [] e.action = "Settle" -> Settle(e.attempt) /\ AttemptIs(e)

\* What happens outside of the ledger: the writes of the producer, the end of leases and processes, and the gate's reading.
Hidden ==
    \/ \E r \in Runners, n \in Numbers, content \in Contents \ {"nothing"} : Write(r, n, content)
    \/ \E s \in Stewards, n \in Numbers : ReadMain(s, n)
    \/ \E r \in Runners : RunnerDies(r)
    \/ Expire

TraceInit == Init /\ done = 0

TraceNext ==
    \/ done < Len(Observed) /\ Make(Observed[done + 1]) /\ done' = done + 1
    \/ done < Len(Observed) /\ Hidden /\ done' = done

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, done>>

\* TLC reports that this is violated if the model can make every observed step.
StepsAreLeft == done < Len(Observed)

\* Prints each number of steps when TLC has first made so many, to show which step the model refuses.
Progress == IF done > TLCGet(1) THEN TLCSet(1, done) /\ PrintT(<<"steps made", done>>) ELSE TRUE
ASSUME TLCSet(1, 0)
=============================================================================
