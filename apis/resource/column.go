package resource

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// objectMeta has the API's descriptions of the fields of metadata.
var objectMeta = metav1.ObjectMeta{}.SwaggerDoc()

// Name is the first column of every table: the object's name.
func Name[T Object]() Column[T] {
	return Column[T]{Name: "Name", Format: "name", Description: objectMeta["name"], Value: func(obj T) any { return obj.GetName() }}
}

// Age is the column of the time since the object was created.
func Age[T Object]() Column[T] {
	return Column[T]{Name: "Age", Description: objectMeta["creationTimestamp"], Value: func(obj T) any { return obj.GetCreationTimestamp() }}
}

// Wide returns the columns with priority 1: they are shown by kubectl -o wide.
func Wide[T Object](columns ...Column[T]) []Column[T] {
	for i := range columns {
		columns[i].Priority = 1
	}
	return columns
}
