// The sandbox image's program for amd64. It is the pseudocode in program.go, step by step.
//
// Linux takes the number of a system call in AX and its arguments in DI, SI, DX
// and R10, and returns the result in AX.

#include "textflag.h"

TEXT ·pause(SB), NOSPLIT|NOFRAME, $0
	PUSHQ	$0x14002	// the signal set {SIGINT 2, SIGTERM 15, SIGCHLD 17}: bits n-1; at SP from here on
	MOVL	$14, AX		// rt_sigprocmask
	XORL	DI, DI		// SIG_BLOCK
	MOVQ	SP, SI
	XORL	DX, DX		// no old set
	MOVL	$8, R10		// size of the set
	SYSCALL
reap:
	MOVL	$61, AX		// wait4
	ORL	$-1, DI		// any child
	XORL	SI, SI		// no status
	MOVL	$1, DX		// WNOHANG
	XORL	R10, R10	// no rusage
	SYSCALL
	TESTL	AX, AX
	JGT	reap
wait:
	MOVL	$128, AX	// rt_sigtimedwait
	MOVQ	SP, DI
	XORL	SI, SI		// no siginfo
	XORL	DX, DX		// no timeout
	MOVL	$8, R10		// size of the set
	SYSCALL
	CMPL	AX, $17		// SIGCHLD
	JEQ	reap
	TESTL	AX, AX
	JMI	wait		// interrupted, for example stopped and continued
	MOVL	$231, AX	// exit_group
	XORL	DI, DI		// status 0
	SYSCALL
