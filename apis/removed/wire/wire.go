// Package wire owns the protobuf encoding and the deep copies of Go types that have no
// generated code: both follow from the types' fields and their protobuf tags.
package wire

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

type marshaler interface{ Marshal() ([]byte, error) }
type unmarshaler interface{ Unmarshal([]byte) error }

// Marshal encodes a pointer to a struct. As in Kubernetes' generated code, all fields
// are written but nil pointers and empty slices and maps.
func Marshal(obj any) ([]byte, error) { return appendStruct(nil, reflect.ValueOf(obj).Elem()) }

func appendStruct(data []byte, v reflect.Value) ([]byte, error) {
	for i := range v.NumField() {
		number := numberOf(v.Type().Field(i))
		if number == 0 {
			continue
		}
		var err error
		if data, err = appendField(data, number, v.Field(i)); err != nil {
			return nil, fmt.Errorf("%s: %w", v.Type().Field(i).Name, err)
		}
	}
	return data, nil
}

// numberOf returns the number of a field, or 0 if it is not encoded.
func numberOf(f reflect.StructField) protowire.Number {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return 0
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil {
		return 0
	}
	return protowire.Number(n)
}

func appendField(data []byte, number protowire.Number, v reflect.Value) ([]byte, error) {
	switch {
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			return data, nil
		}
		return appendField(data, number, v.Elem())
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		for i := range v.Len() {
			var err error
			if data, err = appendField(data, number, v.Index(i)); err != nil {
				return nil, err
			}
		}
		return data, nil
	}
	switch v.Kind() {
	case reflect.String:
		return protowire.AppendString(protowire.AppendTag(data, number, protowire.BytesType), v.String()), nil
	case reflect.Bool:
		return protowire.AppendVarint(protowire.AppendTag(data, number, protowire.VarintType), protowire.EncodeBool(v.Bool())), nil
	case reflect.Int32, reflect.Int64:
		return protowire.AppendVarint(protowire.AppendTag(data, number, protowire.VarintType), uint64(v.Int())), nil
	case reflect.Slice:
		if v.IsNil() {
			return data, nil
		}
		return protowire.AppendBytes(protowire.AppendTag(data, number, protowire.BytesType), v.Bytes()), nil
	case reflect.Struct:
		message, err := marshalStruct(v)
		if err != nil {
			return nil, err
		}
		return protowire.AppendBytes(protowire.AppendTag(data, number, protowire.BytesType), message), nil
	}
	return nil, fmt.Errorf("no encoding of %s", v.Type())
}

// marshalStruct encodes a struct by its own method, if it has one.
func marshalStruct(v reflect.Value) ([]byte, error) {
	if v.CanAddr() {
		if m, ok := v.Addr().Interface().(marshaler); ok {
			return m.Marshal()
		}
	}
	return appendStruct(nil, v)
}

// Unmarshal decodes data into a pointer to a struct; fields that it does not know are
// skipped.
func Unmarshal(data []byte, obj any) error { return decodeStruct(data, reflect.ValueOf(obj).Elem()) }

func decodeStruct(data []byte, v reflect.Value) error {
	fields := map[protowire.Number]int{}
	for i := range v.NumField() {
		if number := numberOf(v.Type().Field(i)); number != 0 {
			fields[number] = i
		}
	}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return protowire.ParseError(n)
		}
		if i, known := fields[number]; known {
			if err := decodeField(kind, data[:n], v.Field(i)); err != nil {
				return fmt.Errorf("%s: %w", v.Type().Field(i).Name, err)
			}
		}
		data = data[n:]
	}
	return nil
}

func decodeField(kind protowire.Type, data []byte, v reflect.Value) error {
	switch {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return decodeField(kind, data, v.Elem())
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		item := reflect.New(v.Type().Elem()).Elem()
		if err := decodeField(kind, data, item); err != nil {
			return err
		}
		v.Set(reflect.Append(v, item))
		return nil
	}
	switch v.Kind() {
	case reflect.Bool, reflect.Int32, reflect.Int64:
		if kind != protowire.VarintType {
			return fmt.Errorf("wire type %d, want a varint", kind)
		}
		number, n := protowire.ConsumeVarint(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if v.Kind() == reflect.Bool {
			v.SetBool(protowire.DecodeBool(number))
		} else {
			v.SetInt(int64(number))
		}
		return nil
	case reflect.String, reflect.Slice, reflect.Struct:
	default:
		return fmt.Errorf("no encoding of %s", v.Type())
	}
	if kind != protowire.BytesType {
		return fmt.Errorf("wire type %d, want bytes", kind)
	}
	content, n := protowire.ConsumeBytes(data)
	if n < 0 {
		return protowire.ParseError(n)
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(string(content))
		return nil
	case reflect.Slice:
		v.SetBytes(append([]byte{}, content...))
		return nil
	}
	if m, ok := v.Addr().Interface().(unmarshaler); ok {
		return m.Unmarshal(content)
	}
	return decodeStruct(content, v)
}

// Copy returns a copy of *in that shares no memory with it.
func Copy[T any](in *T) *T {
	out := new(T)
	copyTo(reflect.ValueOf(out).Elem(), reflect.ValueOf(in).Elem())
	return out
}

func copyTo(out, in reflect.Value) {
	// A type with a method of its own, rather than one of an embedded field, may have
	// fields that are not exported.
	if method := in.Addr().MethodByName("DeepCopyInto"); method.IsValid() && method.Type().In(0) == in.Addr().Type() {
		method.Call([]reflect.Value{out.Addr()})
		return
	}
	switch in.Kind() {
	case reflect.Struct:
		for i := range in.NumField() {
			copyTo(out.Field(i), in.Field(i))
		}
	case reflect.Pointer:
		if !in.IsNil() {
			out.Set(reflect.New(in.Type().Elem()))
			copyTo(out.Elem(), in.Elem())
		}
	case reflect.Slice:
		if !in.IsNil() {
			out.Set(reflect.MakeSlice(in.Type(), in.Len(), in.Len()))
			for i := range in.Len() {
				copyTo(out.Index(i), in.Index(i))
			}
		}
	default:
		out.Set(in)
	}
}
