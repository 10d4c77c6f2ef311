package main

import (
	"go/ast"
	"reflect"
	"strconv"
	"strings"

	"svc.dev/svc/internal/releases"
)

// fieldsOf returns the fields of a type as JSON has them, those of embedded structs
// among them, without their spans. It is nil for what is
// neither a struct nor another name of one.
func (s *source) fieldsOf(p *pkg, d *decl) []releases.Field {
	st, ok := d.expr.(*ast.StructType)
	if !ok {
		if in, named := s.find(p, d, d.expr); named != nil {
			return s.fieldsOf(in, named)
		}
		return nil
	}
	var fields []releases.Field
	for _, f := range st.Fields.List {
		name, inline := jsonName(f)
		switch {
		case inline:
			if in, embedded := s.find(p, d, f.Type); embedded != nil {
				fields = append(fields, s.fieldsOf(in, embedded)...)
			}
		case name != "":
			field := s.refer(p, d, f.Type)
			field.Name = name
			fields = append(fields, field)
		}
	}
	return fields
}

// jsonName returns the name of a field in JSON, empty for a field that is not there,
// and whether the fields of its struct stand in its place.
func jsonName(f *ast.Field) (name string, inline bool) {
	tag := ""
	if f.Tag != nil {
		unquoted, _ := strconv.Unquote(f.Tag.Value) // the parser has accepted it
		tag = reflect.StructTag(unquoted).Get("json")
	}
	name, options, _ := strings.Cut(tag, ",")
	switch {
	case name == "-":
		return "", false
	case name != "":
		return name, false
	case len(f.Names) == 0 || strings.Contains(options, "inline"):
		return "", true
	case !f.Names[0].IsExported():
		return "", false
	}
	return f.Names[0].Name, false
}

// find returns the declaration that an expression names.
func (s *source) find(p *pkg, d *decl, e ast.Expr) (*pkg, *decl) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return s.find(p, d, e.X)
	case *ast.Ident:
		return p, p.types[e.Name]
	case *ast.SelectorExpr:
		local, ok := e.X.(*ast.Ident)
		if !ok {
			break
		}
		if other := s.packages[nameOf(d.imports[local.Name])]; other != nil {
			return other, other.types[e.Sel.Name]
		}
	}
	return nil, nil
}

// refer returns a field with the shape and type of an expression.
func (s *source) refer(p *pkg, d *decl, e ast.Expr) releases.Field {
	scalar := releases.Field{Shape: releases.Scalar}
	switch e := e.(type) {
	case *ast.StarExpr:
		return s.refer(p, d, e.X)
	case *ast.ArrayType:
		return wrap(s.refer(p, d, e.Elt), releases.List)
	case *ast.MapType:
		return wrap(s.refer(p, d, e.Value), releases.Map)
	case *ast.Ident, *ast.SelectorExpr:
		in, named := s.find(p, d, e)
		if named == nil || named.expr == nil {
			return scalar
		}
		name := in.name + "." + typeName(e)
		_, isStruct := named.expr.(*ast.StructType)
		switch {
		case named.opaque && isStruct:
			if of := s.alternative(in, named); of != "" {
				return releases.Field{Shape: releases.Either, Type: of}
			}
			return scalar
		case named.opaque:
			return scalar
		case isStruct:
			return releases.Field{Shape: releases.Object, Type: name}
		case named.enum && len(named.values) > 0:
			return releases.Field{Shape: releases.Scalar, Type: name, Enum: true}
		}
		return s.refer(in, named, named.expr)
	}
	return scalar
}

// alternative returns the struct that a type with a decoder of its own may hold, such
// as JSONSchemaPropsOrBool, or "".
func (s *source) alternative(p *pkg, d *decl) string {
	for _, f := range d.expr.(*ast.StructType).Fields.List {
		if star, ok := f.Type.(*ast.StarExpr); ok {
			if ref := s.refer(p, d, star); ref.Shape == releases.Object {
				return ref.Type
			}
		}
	}
	return ""
}

func wrap(f releases.Field, in releases.Shape) releases.Field {
	if f.Type == "" || (f.Shape != releases.Object && !f.Enum) || (f.Enum && f.Shape != releases.Scalar) {
		return releases.Field{Shape: releases.Scalar}
	}
	f.Shape = in
	return f
}

func typeName(e ast.Expr) string {
	if sel, ok := e.(*ast.SelectorExpr); ok {
		return sel.Sel.Name
	}
	return e.(*ast.Ident).Name
}
