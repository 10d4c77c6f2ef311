package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/internal/releases"
)

// source is what one release publishes.
type source struct {
	release  releases.Release
	packages map[string]*pkg // by name in the table, such as apps/v1
}

// pkg is a package of types.
type pkg struct {
	name, group string
	types       map[string]*decl
	lifecycles  map[string]*lifecycle
}

// decl is the declaration of a type.
type decl struct {
	expr    ast.Expr
	imports map[string]string // paths by local name
	enum    bool              // marked as an enumeration
	opaque  bool              // it has a JSON decoder of its own
	values  []string          // of its constants
}

// lifecycle is what a kind's generated methods return.
type lifecycle struct {
	introduced, deprecated, removed releases.Release
	replacement                     schema.GroupVersionKind
}

// roots are the folders of each module that hold packages of types, with the prefix
// of their names in the table.
var roots = map[string]map[string]string{
	"k8s.io/api":                     {"": ""},
	"k8s.io/apiextensions-apiserver": {"pkg/apis/apiextensions": "apiextensions/"},
	"k8s.io/kube-aggregator":         {"pkg/apis/apiregistration": "apiregistration/"},
	"k8s.io/apimachinery":            {"pkg/apis/meta": "meta/", "pkg/api": "", "pkg/util/intstr": "intstr", "pkg/runtime": "runtime"},
}

// nameOf returns the name of an imported package in the table, or "".
func nameOf(importPath string) string {
	for mod, folders := range roots {
		for folder, prefix := range folders {
			if rest, found := strings.CutPrefix(importPath, path.Join(mod, folder)); found && (rest == "" || rest[0] == '/') {
				return prefix + strings.TrimPrefix(rest, "/")
			}
		}
	}
	return ""
}

// read adds the packages of a module in dir.
func (s *source) read(mod, dir string) error {
	for folder := range roots[mod] {
		err := filepath.WalkDir(filepath.Join(dir, folder), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return err
			}
			if name := entry.Name(); name == "testdata" || name == "testing" || name == "roundtrip" || name == "fuzzer" || name == "validation" {
				return fs.SkipDir
			}
			rel, err := filepath.Rel(dir, file)
			if err != nil {
				return err
			}
			return s.readPackage(nameOf(path.Join(mod, filepath.ToSlash(rel))), file)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// bulky are generated files without types.
var bulky = regexp.MustCompile(`_test\.go$|^generated\.pb\.go$|^generated\.protomessage|swagger_doc|^zz_generated\.(deepcopy|defaults|conversion|model_name|validations)|^doc\.go$`)

func (s *source) readPackage(name, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 || name == "" {
		return err
	}
	p := &pkg{name: name, types: map[string]*decl{}, lifecycles: map[string]*lifecycle{}}
	s.packages[name] = p
	fset := token.NewFileSet()
	for _, file := range files {
		if bulky.MatchString(filepath.Base(file)) {
			continue
		}
		parsed, err := parser.ParseFile(fset, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if err := p.add(parsed); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// add adds the declarations of a file.
func (p *pkg) add(file *ast.File) error {
	imports := map[string]string{}
	for _, spec := range file.Imports {
		value, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		local := path.Base(value)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		imports[local] = value
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			p.addMethod(d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					t := p.decl(spec.Name.Name)
					t.expr, t.imports = spec.Type, imports
					t.enum = marked(d.Doc) || marked(spec.Doc)
				case *ast.ValueSpec:
					p.addConstants(d.Tok, spec)
				}
			}
		}
	}
	return nil
}

func (p *pkg) decl(name string) *decl {
	if p.types[name] == nil {
		p.types[name] = &decl{}
	}
	return p.types[name]
}

var enumMarker = regexp.MustCompile(`(?m)^\s*(// )?\+enum\s*$`)

// marked reports whether a comment marks an enumeration. Text() leaves out markers
// without a space, so the lines are read themselves.
func marked(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, c := range doc.List {
		if enumMarker.MatchString(c.Text) {
			return true
		}
	}
	return false
}

func (p *pkg) addConstants(tok token.Token, spec *ast.ValueSpec) {
	for i, name := range spec.Names {
		if tok == token.CONST && i < len(spec.Values) {
			of, isIdent := spec.Type.(*ast.Ident)
			literal, isLiteral := spec.Values[i].(*ast.BasicLit)
			if isIdent && isLiteral && literal.Kind == token.STRING {
				if value, err := strconv.Unquote(literal.Value); err == nil {
					p.decl(of.Name).values = append(p.decl(of.Name).values, value)
				}
			}
			if isLiteral && name.Name == "GroupName" {
				p.group, _ = strconv.Unquote(literal.Value) // a string literal
			}
		}
	}
}

// addMethod notes decoders and lifecycles.
func (p *pkg) addMethod(f *ast.FuncDecl) {
	if f.Recv == nil || len(f.Recv.List) != 1 {
		return
	}
	recv := f.Recv.List[0].Type
	if star, ok := recv.(*ast.StarExpr); ok {
		recv = star.X
	}
	of, ok := recv.(*ast.Ident)
	if !ok {
		return
	}
	if f.Name.Name == "UnmarshalJSON" {
		p.decl(of.Name).opaque = true
	}
	if !strings.HasPrefix(f.Name.Name, "APILifecycle") || len(f.Body.List) != 1 {
		return
	}
	result, ok := f.Body.List[0].(*ast.ReturnStmt)
	if !ok {
		return
	}
	if p.lifecycles[of.Name] == nil {
		p.lifecycles[of.Name] = &lifecycle{}
	}
	p.lifecycles[of.Name].add(f.Name.Name, result.Results)
}

func (l *lifecycle) add(method string, results []ast.Expr) {
	if method == "APILifecycleReplacement" {
		for _, e := range results[0].(*ast.CompositeLit).Elts {
			pair := e.(*ast.KeyValueExpr)
			value, _ := strconv.Unquote(pair.Value.(*ast.BasicLit).Value) // generated string literals
			reflect.ValueOf(&l.replacement).Elem().FieldByName(pair.Key.(*ast.Ident).Name).SetString(value)
		}
		return
	}
	minor, _ := strconv.Atoi(results[1].(*ast.BasicLit).Value) // generated numbers
	switch method {
	case "APILifecycleIntroduced":
		l.introduced = releases.Release(minor)
	case "APILifecycleDeprecated":
		l.deprecated = releases.Release(minor)
	case "APILifecycleRemoved":
		l.removed = releases.Release(minor)
	}
}
