"""ScienceWorld's own interpreter, with the simulator's jar and py4j, and the Java that runs it."""

from tasks.core.worlds.scienceworld.environment.interpreter import SCIENCEWORLD, java_executable, python_executable

__all__ = ["SCIENCEWORLD", "java_executable", "python_executable"]
