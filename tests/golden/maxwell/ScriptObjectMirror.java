package jdk.nashorn.api.scripting;
public abstract class ScriptObjectMirror extends java.util.HashMap<String, Object> {
    public abstract boolean isArray();
}
