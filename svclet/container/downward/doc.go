// Package downward gives what a pod may know about itself: the values of
// fieldRef and resourceFieldRef, in variables and in files.
package downward
