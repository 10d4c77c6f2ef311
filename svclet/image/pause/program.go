package pause

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// The program does on each platform what this says:
//
//	sigprocmask(SIG_BLOCK, {SIGINT, SIGTERM, SIGCHLD})
//	reap:
//		while wait4(-1, NULL, WNOHANG, NULL) > 0 {}
//	wait:
//		switch signal := sigtimedwait({SIGINT, SIGTERM, SIGCHLD}); {
//		case signal == SIGCHLD: goto reap
//		case signal < 0: goto wait // interrupted: stopped and continued, say
//		}
//		exit_group(0)
//
// A signal that is blocked reaches even the init process of a PID namespace,
// which has no handler for it; see pid_namespaces(7).

// amd64Code passes the number of a system call in rax and its arguments in rdi,
// rsi, rdx and r10. The set of signals, 1<<(2-1) | 1<<(15-1) | 1<<(17-1), is on
// the stack.
var amd64Code = []byte{
	0x68, 0x02, 0x40, 0x01, 0x00, //       push  0x14002
	0xb8, 0x0e, 0x00, 0x00, 0x00, //       mov   eax, 14        ; rt_sigprocmask
	0x31, 0xff, //                         xor   edi, edi       ; SIG_BLOCK
	0x48, 0x89, 0xe6, //                   mov   rsi, rsp
	0x31, 0xd2, //                         xor   edx, edx
	0x41, 0xba, 0x08, 0x00, 0x00, 0x00, // mov   r10d, 8        ; the size of the set
	0x0f, 0x05, //                         syscall
	// reap:
	0xb8, 0x3d, 0x00, 0x00, 0x00, //       mov   eax, 61        ; wait4
	0x83, 0xcf, 0xff, //                   or    edi, -1        ; any child
	0x31, 0xf6, //                         xor   esi, esi
	0xba, 0x01, 0x00, 0x00, 0x00, //       mov   edx, 1         ; WNOHANG
	0x45, 0x31, 0xd2, //                   xor   r10d, r10d
	0x0f, 0x05, //                         syscall
	0x85, 0xc0, //                         test  eax, eax
	0x7f, 0xe8, //                         jg    reap
	// wait:
	0xb8, 0x80, 0x00, 0x00, 0x00, //       mov   eax, 128       ; rt_sigtimedwait
	0x48, 0x89, 0xe7, //                   mov   rdi, rsp
	0x31, 0xf6, //                         xor   esi, esi       ; no siginfo
	0x31, 0xd2, //                         xor   edx, edx       ; no timeout
	0x41, 0xba, 0x08, 0x00, 0x00, 0x00, // mov   r10d, 8
	0x0f, 0x05, //                         syscall
	0x83, 0xf8, 0x11, //                   cmp   eax, 17        ; SIGCHLD
	0x74, 0xcf, //                         je    reap
	0x85, 0xc0, //                         test  eax, eax
	0x78, 0xe3, //                         js    wait
	0xb8, 0xe7, 0x00, 0x00, 0x00, //       mov   eax, 231       ; exit_group
	0x31, 0xff, //                         xor   edi, edi
	0x0f, 0x05, //                         syscall
}

// arm64Code passes the number of a system call in x8 and its arguments in x0 to
// x3.
var arm64Code = words(
	0x52880049, // mov   w9, #0x4002
	0x72a00029, // movk  w9, #1, lsl #16
	0xf81f0fe9, // str   x9, [sp, #-16]!
	0xd2800000, // mov   x0, #0             // SIG_BLOCK
	0x910003e1, // mov   x1, sp
	0xd2800002, // mov   x2, #0
	0xd2800103, // mov   x3, #8             // the size of the set
	0xd28010e8, // mov   x8, #135           // rt_sigprocmask
	0xd4000001, // svc   #0
	// reap:
	0x92800000, // mov   x0, #-1            // any child
	0xd2800001, // mov   x1, #0
	0xd2800022, // mov   x2, #1             // WNOHANG
	0xd2800003, // mov   x3, #0
	0xd2802088, // mov   x8, #260           // wait4
	0xd4000001, // svc   #0
	0x7100001f, // cmp   w0, #0
	0x54ffff2c, // b.gt  reap
	// wait:
	0x910003e0, // mov   x0, sp
	0xd2800001, // mov   x1, #0             // no siginfo
	0xd2800002, // mov   x2, #0             // no timeout
	0xd2800103, // mov   x3, #8
	0xd2801128, // mov   x8, #137           // rt_sigtimedwait
	0xd4000001, // svc   #0
	0x7100441f, // cmp   w0, #17            // SIGCHLD
	0x54fffe20, // b.eq  reap
	0x37ffff00, // tbnz  w0, #31, wait
	0xd2800000, // mov   x0, #0
	0xd2800bc8, // mov   x8, #94            // exit_group
	0xd4000001, // svc   #0
)

// program is an architecture's machine code.
type program struct {
	arch    string // Go's name, which is OCI's too
	machine elf.Machine
	code    []byte
}

var programs = []program{
	{"amd64", elf.EM_X86_64, amd64Code},
	{"arm64", elf.EM_AARCH64, arm64Code},
}

const (
	// loadAddress is where a program's file is mapped, as a whole.
	loadAddress = 0x400000
	// largestPage is that of arm64.
	largestPage = 0x10000

	headerSize        = 64 // of elf.Header64
	programHeaderSize = 56 // of elf.Prog64
)

// executable is the file of a program: a static ELF executable of one segment,
// and a note that the stack is for data only.
func (p program) executable() []byte {
	codeAt := uint64(headerSize + 2*programHeaderSize)
	size := codeAt + uint64(len(p.code))
	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(p.machine), Version: uint32(elf.EV_CURRENT),
		Entry: loadAddress + codeAt, Phoff: headerSize, Ehsize: headerSize, Phentsize: programHeaderSize, Phnum: 2,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	segments := []elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: loadAddress, Paddr: loadAddress, Filesz: size, Memsz: size, Align: largestPage},
		{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16},
	}
	var file bytes.Buffer
	for _, part := range []any{header, segments, p.code} {
		if err := binary.Write(&file, binary.LittleEndian, part); err != nil {
			panic(err) // values of fixed size always encode
		}
	}
	return file.Bytes()
}

func words(instructions ...uint32) []byte {
	var code []byte
	for _, i := range instructions {
		code = binary.LittleEndian.AppendUint32(code, i)
	}
	return code
}
