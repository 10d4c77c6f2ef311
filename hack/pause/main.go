// Command pause assembles the program of the sandbox image with Go's assembler and
// writes its machine code as Go source. It runs in the root of the module.
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	sources = "svclet/image/pause/asm"
	output  = "svclet/image/pause/zz_generated.code.go"
)

func main() {
	if err := generate(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", output, err)
		os.Exit(1)
	}
}

func generate() error {
	dir, err := os.MkdirTemp("", "pause")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var b bytes.Buffer
	b.WriteString("// Code generated from " + filepath.Base(sources) + "/*.s by make generate; DO NOT EDIT.\n\npackage pause\n")
	for _, arch := range []string{"amd64", "arm64"} {
		code, err := assemble(dir, arch)
		if err != nil {
			return fmt.Errorf("assemble for %s: %w", arch, err)
		}
		fmt.Fprintf(&b, "\n// %[1]sCode is the machine code of pause_%[1]s.s.\nconst %[1]sCode = \"\" +\n", arch)
		for i, instruction := range code {
			end := " +\n"
			if i == len(code)-1 {
				end = "\n"
			}
			b.WriteString(`"`)
			for _, c := range instruction {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
			b.WriteString(`"` + end)
		}
	}
	source, err := format.Source(b.Bytes())
	if err != nil {
		return err
	}
	return os.WriteFile(output, source, 0o644)
}

// assemble returns the instructions of the program for an architecture.
func assemble(dir, arch string) ([][]byte, error) {
	root, err := goCommand(arch, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	include := filepath.Join(strings.TrimSpace(root), "pkg", "include")
	source, object := filepath.Join(sources, "pause_"+arch+".s"), filepath.Join(dir, arch+".o")
	if _, err := goCommand(arch, "tool", "asm", "-p", "pause", "-I", include, "-o", object, source); err != nil {
		return nil, err
	}
	listing, err := goCommand(arch, "tool", "objdump", object)
	if err != nil {
		return nil, err
	}
	// A line is: FILE:LINE ADDRESS CODE INSTRUCTION. CODE is bytes on amd64, and
	// one word on arm64. Padding has the instruction "?".
	var code [][]byte
	for line := range strings.Lines(listing) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "pause_") || fields[3] == "?" {
			continue
		}
		instruction, err := hex.DecodeString(fields[2])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		if arch == "arm64" {
			instruction = binary.LittleEndian.AppendUint32(nil, binary.BigEndian.Uint32(instruction))
		}
		code = append(code, instruction)
	}
	if len(code) == 0 {
		return nil, errors.New("objdump lists no instructions")
	}
	return code, nil
}

func goCommand(arch string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}
