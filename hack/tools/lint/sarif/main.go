// Command sarif validates files in the Static Analysis Results Interchange Format against the
// schema of version 2.1.0 that OASIS has published.
//
// usage: sarif SCHEMA FILE...
package main

import (
	"fmt"
	"os"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sarif:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: sarif SCHEMA FILE")
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat() // such as that of URIs
	schema, err := compiler.Compile(args[0])
	if err != nil {
		return err
	}
	for _, name := range args[1:] {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		log, err := jsonschema.UnmarshalJSON(file)
		file.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := schema.Validate(log); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
