---------------------------- MODULE Publication ----------------------------
(***************************************************************************)
(* How the chunks of one workload are published: leases, attempts, proofs, *)
(* the swap of the table's pointer, and crashes at any moment.             *)
(*                                                                         *)
(* Each condition that the protocol relies on is written Guard(name, ...). *)
(* TLC runs the model once with every guard, and once without each of them *)
(* in turn: then an invariant must fail (tools/check_model.py).            *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Chunks,         \* the chunks of the workload's plan
    Runners,        \* processes of the producer; each of them may run a segment
    Stewards,       \* processes of the Steward, on one ledger
    AttemptsMax,    \* how many attempts there may be in all
    LeasesMax,      \* how many leases there may be in all
    CrashesMax,     \* how many processes may die
    MovesMax,       \* how often other workloads publish to the same table
    Removed         \* the name of the guard that is left out, or "none"

VARIABLES
    lease,          \* the newest lease: its number, and whether it is live
    held,           \* for each runner, the number of the lease that it believes it holds; 0 if none
    attempts,       \* the attempts in the ledger, by number
    main,           \* the table: its version, how often each chunk is in it, and its snapshots
    seen,           \* for each Steward, the attempt that it publishes and the version of main that it has read
    crashes,        \* how many processes have died
    moves,          \* how often other workloads have published
    fault           \* whether a runner has changed something without the newest lease

vars == <<lease, held, attempts, main, seen, crashes, moves, fault>>

Guard(name, condition) == Removed = name \/ condition

Numbers == 1..AttemptsMax
Contents == {"nothing", "right", "wrong"}
Live == {"STAGING", "VERIFYING", "COMMITTING"}
Opened == {n \in Numbers : attempts[n].state # "NONE"}
NoAttempt == [chunk |-> "none", lease |-> 0, state |-> "NONE", staged |-> "nothing", copy |-> "nothing",
              proof |-> "none", nonce |-> "NONE"]

Init ==
    /\ lease = [number |-> 0, live |-> FALSE]
    /\ held = [r \in Runners |-> 0]
    /\ attempts = [n \in Numbers |-> NoAttempt]
    /\ main = [version |-> 0, rows |-> [c \in Chunks |-> 0], listed |-> {}, shown |-> {}]
    /\ seen = [s \in Stewards |-> [attempt |-> 0, version |-> 0]]
    /\ crashes = 0
    /\ moves = 0
    /\ fault = FALSE

HasLease(r) == held[r] # 0 /\ held[r] = lease.number /\ lease.live
\* A change by a runner. `fault` notes that the runner had lost its lease to another one.
NoteFault(r) == fault' = (fault \/ held[r] # lease.number)

-----------------------------------------------------------------------------
(* The producer *)

\* A run gets the lease when the last one is over, or takes it over. Both are allowed at any time here.
Acquire(r) ==
    /\ held[r] # lease.number \/ lease.number = 0
    /\ lease.number < LeasesMax
    /\ lease' = [number |-> lease.number + 1, live |-> TRUE]
    /\ held' = [held EXCEPT ![r] = lease.number + 1]
    /\ UNCHANGED <<attempts, main, seen, crashes, moves, fault>>

\* The holder was suspended, cut off or killed; or it has released its lease.
Expire ==
    /\ lease.live
    /\ lease' = [lease EXCEPT !.live = FALSE]
    /\ UNCHANGED <<held, attempts, main, seen, crashes, moves, fault>>

Open(r, c, n) ==
    /\ held[r] # 0
    /\ Guard("lease on open", HasLease(r))
    /\ attempts[n].state = "NONE"
    /\ \A m \in Numbers : m < n => attempts[m].state # "NONE"
    /\ Guard("one live attempt", \A m \in Opened : attempts[m].chunk = c => attempts[m].state \notin Live)
    /\ Guard("chunk is not published", \A m \in Opened : attempts[m].chunk = c => attempts[m].state # "COMMITTED")
    /\ attempts' = [attempts EXCEPT ![n] = [NoAttempt EXCEPT
           !.chunk = c, !.lease = held[r], !.state = "STAGING", !.nonce = "RESERVED"]]
    /\ NoteFault(r)
    /\ UNCHANGED <<lease, held, main, seen, crashes, moves>>

\* The rows on the attempt's branch become the intended ones, or others: a part of them is "wrong" too.
Write(r, n, content) ==
    /\ held[r] # 0 /\ attempts[n].lease = held[r]
    /\ attempts[n].state = "STAGING"
    /\ Guard("lease on write", HasLease(r))
    /\ attempts[n].staged # content
    /\ attempts' = [attempts EXCEPT ![n].staged = content]
    /\ NoteFault(r)
    /\ UNCHANGED <<lease, held, main, seen, crashes, moves>>

HandIn(r, n) ==
    /\ held[r] # 0 /\ attempts[n].lease = held[r]
    /\ attempts[n].state = "STAGING"
    /\ Guard("lease on hand-in", HasLease(r))
    /\ attempts' = [attempts EXCEPT ![n].state = "VERIFYING"]
    /\ NoteFault(r)
    /\ UNCHANGED <<lease, held, main, seen, crashes, moves>>

\* A run aborts an attempt that an earlier one has left, or its own.
Abort(r, n) ==
    /\ HasLease(r)
    /\ attempts[n].state \in Live
    /\ Guard("only staging is aborted", attempts[n].state = "STAGING")
    /\ attempts' = [attempts EXCEPT ![n].state = "ROLLED_BACK", ![n].nonce = "VOID"]
    /\ UNCHANGED <<lease, held, main, seen, crashes, moves, fault>>

\* The producer can still write its own files after the hand-in.
Tamper(n) ==
    /\ attempts[n].state \in {"VERIFYING", "COMMITTING"}
    /\ attempts[n].staged # "wrong"
    /\ attempts' = [attempts EXCEPT ![n].staged = "wrong"]
    /\ UNCHANGED <<lease, held, main, seen, crashes, moves, fault>>

-----------------------------------------------------------------------------
(* The Steward *)

\* It copies what is staged, compares the copy with the intended rows, signs the verdict, and logs it.
Prove(n) ==
    /\ attempts[n].state = "VERIFYING" /\ attempts[n].proof = "none"
    /\ attempts' = [attempts EXCEPT
           ![n].copy = attempts[n].staged,
           ![n].proof = IF attempts[n].staged = "right" THEN "PASS" ELSE "FAIL"]
    /\ UNCHANGED <<lease, held, main, seen, crashes, moves, fault>>

EndVerification(n) ==
    /\ attempts[n].state = "VERIFYING" /\ attempts[n].proof # "none"
    /\ attempts' = [attempts EXCEPT
           ![n].state = IF attempts[n].proof = "PASS" THEN "COMMITTING" ELSE "VERIFICATION_FAILED",
           ![n].nonce = IF attempts[n].proof = "PASS" THEN "RESERVED" ELSE "VOID"]
    /\ UNCHANGED <<lease, held, main, seen, crashes, moves, fault>>

\* The gate reads main. Whoever holds a proof can present it to the gate, at any time.
ReadMain(s, n) ==
    /\ seen[s].attempt = 0
    /\ attempts[n].proof # "none"
    /\ Guard("verdict is PASS", attempts[n].proof = "PASS")
    /\ Guard("nonce is reserved", attempts[n].nonce = "RESERVED")
    /\ Guard("not published before", n \notin main.listed)
    /\ seen' = [seen EXCEPT ![s] = [attempt |-> n, version |-> main.version]]
    /\ UNCHANGED <<lease, held, attempts, main, crashes, moves, fault>>

\* The pointer of the table changes only from the version that the gate has read.
Swap(s) ==
    LET n == seen[s].attempt IN
    /\ n # 0
    /\ Guard("compare and swap", seen[s].version = main.version)
    /\ LET shown == IF Removed = "the copy is published" THEN attempts[n].staged ELSE attempts[n].copy IN
       main' = [main EXCEPT
           !.version = @ + 1,
           !.rows[attempts[n].chunk] = @ + 1,
           !.listed = @ \cup {n},
           !.shown = @ \cup {[attempt |-> n, content |-> shown]}]
    /\ seen' = [seen EXCEPT ![s] = [attempt |-> 0, version |-> 0]]
    /\ UNCHANGED <<lease, held, attempts, crashes, moves, fault>>

\* Main has moved since it was read: the Steward reads it again.
Refused(s) ==
    /\ seen[s].attempt # 0 /\ seen[s].version # main.version
    /\ seen' = [seen EXCEPT ![s] = [attempt |-> 0, version |-> 0]]
    /\ UNCHANGED <<lease, held, attempts, main, crashes, moves, fault>>

\* The ledger notes the publication, after the swap or after a restart: main shows whether there was one.
Settle(n) ==
    /\ n \in main.listed
    /\ attempts[n].state = "COMMITTING"
    /\ attempts' = [attempts EXCEPT ![n].state = "COMMITTED", ![n].nonce = "USED"]
    /\ UNCHANGED <<lease, held, main, seen, crashes, moves, fault>>

-----------------------------------------------------------------------------
(* Everything else *)

\* Another workload publishes its rows.
Move ==
    /\ moves < MovesMax
    /\ moves' = moves + 1
    /\ main' = [main EXCEPT !.version = @ + 1]
    /\ UNCHANGED <<lease, held, attempts, seen, crashes, fault>>

\* Old snapshots are expired: main does not list them any more, and keeps their rows.
ExpireSnapshots ==
    /\ \E n \in main.listed : attempts[n].state = "COMMITTED"
    /\ main' = [main EXCEPT !.listed = {n \in @ : attempts[n].state # "COMMITTED"}]
    /\ UNCHANGED <<lease, held, attempts, seen, crashes, moves, fault>>

RunnerDies(r) ==
    /\ crashes < CrashesMax /\ held[r] # 0
    /\ crashes' = crashes + 1
    /\ held' = [held EXCEPT ![r] = 0]
    /\ UNCHANGED <<lease, attempts, main, seen, moves, fault>>

StewardDies(s) ==
    /\ crashes < CrashesMax /\ seen[s].attempt # 0
    /\ crashes' = crashes + 1
    /\ seen' = [seen EXCEPT ![s] = [attempt |-> 0, version |-> 0]]
    /\ UNCHANGED <<lease, held, attempts, main, moves, fault>>

Next ==
    \/ \E r \in Runners : Acquire(r) \/ RunnerDies(r)
    \/ \E r \in Runners, c \in Chunks, n \in Numbers : Open(r, c, n)
    \/ \E r \in Runners, n \in Numbers, content \in Contents \ {"nothing"} : Write(r, n, content)
    \/ \E r \in Runners, n \in Numbers : HandIn(r, n) \/ Abort(r, n)
    \/ \E n \in Numbers : Tamper(n) \/ Prove(n) \/ EndVerification(n) \/ Settle(n)
    \/ \E s \in Stewards, n \in Numbers : ReadMain(s, n)
    \/ \E s \in Stewards : Swap(s) \/ Refused(s) \/ StewardDies(s)
    \/ Expire \/ Move \/ ExpireSnapshots

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold *)

TypesHold ==
    /\ lease.number \in 0..LeasesMax
    /\ \A n \in Numbers : attempts[n].staged \in Contents /\ attempts[n].copy \in Contents

\* Every snapshot that consumers can see has a PASS proof for exactly its content.
OnlyProvedRowsAreShown ==
    \A each \in main.shown :
        /\ each.content = "right"
        /\ attempts[each.attempt].proof = "PASS"
        /\ attempts[each.attempt].copy = each.content

NoChunkIsPublishedTwice == \A c \in Chunks : main.rows[c] <= 1

\* What the ledger says to the producer is true.
NothingIsShownOfAnAbortedAttempt ==
    \A each \in main.shown : attempts[each.attempt].state \notin {"ROLLED_BACK", "VERIFICATION_FAILED"}

OnlyTheHolderOfTheLeaseChangesAnything == ~fault
=============================================================================
