// The sandbox image's program for arm64. It is the pseudocode in program.go, step by step.
//
// Linux takes the number of a system call in R8 and its arguments in R0 to R3, and
// returns the result in R0.

#include "textflag.h"

TEXT ·pause(SB), NOSPLIT|NOFRAME, $0
	MOVZW	$0x4002, R9	// the signal set {SIGINT 2, SIGTERM 15, SIGCHLD 17}: bits n-1
	MOVKW	$(1<<16), R9
	MOVD.W	R9, -16(RSP)	// at RSP from here on
	MOVD	$0, R0		// SIG_BLOCK
	MOVD	RSP, R1
	MOVD	$0, R2		// no old set
	MOVD	$8, R3		// size of the set
	MOVD	$135, R8	// rt_sigprocmask
	SVC	$0
reap:
	MOVD	$-1, R0		// any child
	MOVD	$0, R1		// no status
	MOVD	$1, R2		// WNOHANG
	MOVD	$0, R3		// no rusage
	MOVD	$260, R8	// wait4
	SVC	$0
	CMPW	$0, R0
	BGT	reap
wait:
	MOVD	RSP, R0
	MOVD	$0, R1		// no siginfo
	MOVD	$0, R2		// no timeout
	MOVD	$8, R3		// size of the set
	MOVD	$137, R8	// rt_sigtimedwait
	SVC	$0
	CMPW	$17, R0		// SIGCHLD
	BEQ	reap
	TBNZ	$31, R0, wait	// negative: interrupted, for example stopped and continued
	MOVD	$0, R0		// status 0
	MOVD	$94, R8		// exit_group
	SVC	$0
