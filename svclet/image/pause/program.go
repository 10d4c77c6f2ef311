package pause

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// The program, in assembler in asm/pause_GOARCH.s, is on each platform:
//
//	sigprocmask(SIG_BLOCK, {SIGINT, SIGTERM, SIGCHLD})
//	reap:
//		while wait4(-1, NULL, WNOHANG, NULL) > 0 {}
//	wait:
//		switch signal := sigtimedwait({SIGINT, SIGTERM, SIGCHLD}); {
//		case signal == SIGCHLD: goto reap
//		case signal < 0: goto wait // interrupted, for example stopped and continued
//		}
//		exit_group(0)
//
// The signals are blocked and waited for, because the kernel does not deliver a
// signal without a handler to the init process of a PID namespace, except to a
// wait for it; see pid_namespaces(7).

// program is the machine code for one architecture.
type program struct {
	arch    string // GOARCH, which is also the name in OCI manifests
	machine elf.Machine
	code    string
}

// programs returns the program for every supported architecture.
func programs() []program {
	return []program{
		{"amd64", elf.EM_X86_64, amd64Code},
		{"arm64", elf.EM_AARCH64, arm64Code},
	}
}

const (
	// loadAddress is the address at which the whole file is mapped.
	loadAddress = 0x400000
	// maxPageSize is the largest page size of arm64.
	maxPageSize = 0x10000

	headerSize        = 64 // of elf.Header64
	programHeaderSize = 56 // of elf.Prog64
)

// executable returns the program as a static ELF executable: one segment that is
// loaded, and a header that makes the stack not executable.
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
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: loadAddress, Paddr: loadAddress, Filesz: size, Memsz: size, Align: maxPageSize},
		{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16},
	}
	var file bytes.Buffer
	for _, part := range []any{header, segments, []byte(p.code)} {
		if err := binary.Write(&file, binary.LittleEndian, part); err != nil {
			panic(err) // values of fixed size always encode
		}
	}
	return file.Bytes()
}
