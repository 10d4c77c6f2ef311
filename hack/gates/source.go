package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"svc.dev/svc/hack/pinned"
	"svc.dev/svc/internal/featuregates"
	"svc.dev/svc/internal/releases"
)

// gatesOf downloads a module, and returns its gates.
func gatesOf(m pinned.Module) (gates map[string]featuregates.Spec, err error) {
	cache, err := os.MkdirTemp("", "svc-gates-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(cache)) }()
	dir, err := m.Download(cache)
	if err != nil {
		return nil, err
	}
	if gates, err = read(filepath.Join(dir, "pkg", "features"), m.Release); err != nil {
		return nil, fmt.Errorf("%s@%s: %w", m.Path, m.Version, err)
	}
	return gates, nil
}

// read returns the gates that the files of a folder declare for a release.
func read(dir string, r releases.Release) (map[string]featuregates.Spec, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	gates, constants := map[string]featuregates.Spec{}, map[string]string{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, declaration := range parsed.Decls {
			if err := addDeclared(gates, constants, declaration, r); err != nil {
				return nil, err
			}
		}
	}
	if len(gates) == 0 {
		return nil, fmt.Errorf("%s declares no gates", dir)
	}
	named := map[string]featuregates.Spec{}
	for constant, spec := range gates {
		named[cmp.Or(constants[constant], constant)] = spec
	}
	return named, nil
}

// addDeclared adds what a declaration at the top of a file declares: gates by the names of
// their constants, and constants with their values.
func addDeclared(gates map[string]featuregates.Spec, constants map[string]string, declaration ast.Decl, r releases.Release) error {
	general, ok := declaration.(*ast.GenDecl)
	if !ok {
		return nil
	}
	for _, spec := range general.Specs {
		value, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for i, expr := range value.Values {
			if text, ok := expr.(*ast.BasicLit); ok && general.Tok == token.CONST && text.Kind == token.STRING {
				name, err := strconv.Unquote(text.Value)
				if err != nil {
					return err
				}
				constants[value.Names[i].Name] = name
			}
			if err := add(gates, expr, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds the gates of a map of specifications, by the names of their constants. Those
// of other packages have the names of their gates.
func add(gates map[string]featuregates.Spec, value ast.Expr, r releases.Release) error {
	literal, ok := value.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	of, ok := literal.Type.(*ast.MapType)
	if !ok {
		return nil
	}
	kind, ok := of.Value.(*ast.SelectorExpr)
	if !ok || kind.Sel.Name != "FeatureSpec" && kind.Sel.Name != "VersionedSpecs" {
		return nil
	}
	for _, element := range literal.Elts {
		pair := element.(*ast.KeyValueExpr)
		name := lastName(pair.Key)
		specs := []ast.Expr{pair.Value}
		if kind.Sel.Name == "VersionedSpecs" {
			specs = pair.Value.(*ast.CompositeLit).Elts
		}
		for _, expr := range specs {
			since, spec, err := specOf(expr)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if since <= r {
				gates[name] = spec
			}
		}
	}
	return nil
}

// lastName returns the name of a constant: X of X, features.X and Feature(features.X).
func lastName(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.CallExpr:
		return lastName(e.Args[0])
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// specOf returns what a FeatureSpec says, and since which release.
func specOf(expr ast.Expr) (since releases.Release, spec featuregates.Spec, err error) {
	literal, ok := expr.(*ast.CompositeLit)
	if !ok {
		return 0, spec, fmt.Errorf("its specification is a %T", expr)
	}
	for _, element := range literal.Elts {
		pair := element.(*ast.KeyValueExpr)
		switch value := lastName(pair.Value); lastName(pair.Key) {
		case "Default":
			spec.Default = value == "true"
		case "LockToDefault":
			spec.Locked = value == "true"
		case "PreRelease":
			switch value {
			case "Alpha", "PreAlpha":
				spec.Stage = featuregates.Alpha
			case "Beta":
				spec.Stage = featuregates.Beta
			case "GA":
				spec.Stage = featuregates.GA
			case "Deprecated":
				spec.Stage = featuregates.Deprecated
			default:
				return 0, spec, fmt.Errorf("unknown stage %q", value)
			}
		case "Version":
			call := pair.Value.(*ast.CallExpr)
			text, err := strconv.Unquote(call.Args[0].(*ast.BasicLit).Value)
			if err != nil {
				return 0, spec, err
			}
			minor, err := strconv.Atoi(strings.TrimPrefix(text, "1."))
			if err != nil {
				return 0, spec, err
			}
			since = releases.Release(minor)
		}
	}
	return since, spec, nil
}
