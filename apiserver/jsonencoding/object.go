package jsonencoding

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"reflect"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// marker replaces the managed fields while the rest of an object is encoded. It is
// random, so that no client can send it.
var (
	marker      = rand.Text()
	placeholder = []metav1.ManagedFieldsEntry{{Manager: marker}}
	encoded     = []byte(`{"manager":"` + marker + `"}`)
)

func hasManagedFields(obj runtime.Object) bool {
	m, ok := obj.(metav1.Object)
	return ok && len(m.GetManagedFields()) > 0 && reflect.TypeOf(obj).Kind() == reflect.Pointer && reflect.TypeOf(obj).Elem().Kind() == reflect.Struct
}

// appendObject writes an object. It encodes a shallow copy that has the marker in
// place of the managed fields, and writes the managed fields at the marker's place.
func (s fast) appendObject(buffer *bytes.Buffer, obj runtime.Object) error {
	if _, own := obj.(json.Marshaler); own || !hasManagedFields(obj) {
		return appendJSON(buffer, obj)
	}
	original := reflect.ValueOf(obj).Elem()
	shallow := reflect.New(original.Type())
	shallow.Elem().Set(original)
	marked := shallow.Interface().(metav1.Object)
	fields := marked.GetManagedFields()
	marked.SetManagedFields(placeholder)

	scratch := s.buffers.Get().(*bytes.Buffer)
	defer s.release(scratch)
	if err := appendJSON(scratch, marked); err != nil {
		return err
	}
	before, after, found := bytes.Cut(scratch.Bytes(), encoded)
	buffer.Write(before)
	if !found {
		// The type leaves its managed fields out.
		return nil
	}
	for i := range fields {
		if i > 0 {
			buffer.WriteByte(',')
		}
		if err := appendEntry(buffer, &fields[i]); err != nil {
			return err
		}
	}
	buffer.Write(after)
	return nil
}

// appendEntry writes an entry in the order of the struct's fields.
func appendEntry(buffer *bytes.Buffer, entry *metav1.ManagedFieldsEntry) error {
	separator := byte('{')
	member := func(name string) {
		buffer.WriteByte(separator)
		separator = ','
		buffer.WriteByte('"')
		buffer.WriteString(name)
		buffer.WriteString(`":`)
	}
	text := func(name, value string) {
		if value != "" {
			member(name)
			appendString(buffer, value)
		}
	}
	text("manager", entry.Manager)
	text("operation", string(entry.Operation))
	text("apiVersion", entry.APIVersion)
	if entry.Time != nil {
		member("time")
		if err := appendJSON(buffer, entry.Time); err != nil {
			return err
		}
	}
	text("fieldsType", entry.FieldsType)
	if entry.FieldsV1 != nil {
		member("fieldsV1")
		if raw := entry.FieldsV1.GetRawString(); raw != "" {
			buffer.WriteString(raw)
		} else {
			buffer.WriteString("null")
		}
	}
	text("subresource", entry.Subresource)
	if separator == '{' {
		buffer.WriteByte('{')
	}
	buffer.WriteByte('}')
	return nil
}

// appendString writes a string; most need no escapes.
func appendString(buffer *bytes.Buffer, s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			// Encoding a string cannot fail.
			escaped, _ := json.Marshal(s)
			buffer.Write(escaped)
			return
		}
	}
	buffer.WriteByte('"')
	buffer.WriteString(s)
	buffer.WriteByte('"')
}
